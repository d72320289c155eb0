// Elementary functions, half conversions, norms, rotary embedding and element-wise kernels.
#include "vector_check.hh"

namespace slipstream::check {
namespace {

constexpr int kWidths[] = {1, 7, 16, 17, 64, 576, 1536, 8960};
const float kSpecial[] = {0.0f,      -0.0f,    INFINITY, -INFINITY, NAN,     1e-45f,  -1e-45f,
                          1.17e-38f, 88.7228f, 88.7229f, 88.73f,    -87.34f, -103.9f, -103.98f,
                          -104.0f,   -150.0f,  3.4e38f,  -3.4e38f,  0.625f,  65504.f, 65520.f};

using RowFunction = void (*)(const float*, int, float*);

Floats apply(RowFunction function, const Floats& x) {
  Floats out(x.size());
  function(x.data(), int(x.size()), out.data());
  return out;
}

Floats arguments(double low, double high) {
  std::uniform_real_distribution<float> distribution{float(low), float(high)};
  Floats x(1 << 19);
  for (float& value : x) value = distribution(generator());
  x.insert(x.end(), std::begin(kSpecial), std::end(kSpecial));
  for (int i = 0; i < 1 << 16; ++i) x.push_back(from_bits(uint32_t(generator()())));
  return x;
}

template <class Exact>
void check_accuracy(const char* name, RowFunction function, const Floats& x, double limit,
                    Exact exact) {
  const Floats out = apply(function, x);
  double worst = 0.0;
  float at = 0.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(out[i], exact(double(x[i])));
    if (error > worst) worst = error, at = x[i];
  }
  expect(worst <= limit, "%s: %.3f ulp at %a", name, worst, double(at));
  std::printf("%s: at most %.3f ulp\n", name, worst);
}

void check_log(const VectorKernels& kernels) {
  std::uniform_real_distribution<double> exponent(-1070.0, 1020.0), near(0.5, 1.5);
  long double worst = 0.0L;
  for (int i = 0; i < 400000; ++i) {
    double x = std::exp2(exponent(generator()));
    if (i % 2) x = i % 4 == 1 ? near(generator()) : 1.0 - std::ldexp(near(generator()), -i % 33);
    if (x <= 0.0) continue;
    const long double exact = std::log(static_cast<long double>(x));
    const int place = exact == 0.0L ? -1074 : int(std::ilogb(exact)) - 52;
    const long double error = std::fabs(kernels.log(x) - exact) / std::ldexp(1.0L, place);
    worst = std::max(worst, error);
  }
  expect(worst <= 1.5L, "log: %.3Lf ulp", worst);
  std::printf("log: at most %.3Lf ulp\n", worst);
  expect(kernels.log(0.0) == -INFINITY && kernels.log(INFINITY) == INFINITY, "log at 0, infinity");
  expect(std::isnan(kernels.log(-1.0)) && std::isnan(kernels.log(NAN)), "log of -1, NaN");
  expect(kernels.log(1.0) == 0.0, "log of 1");
}

// sigma(x) with the float overflow of e^-x: below -88.73 the result is a zero.
void check_functions(const VectorKernels& kernels) {
  check_accuracy("exp", kernels.exp, arguments(-105, 90), 1.2,
                 [](double x) { return std::exp(x); });
  check_accuracy("tanh", kernels.tanh, arguments(-10, 10), 2.0,
                 [](double x) { return std::tanh(x); });
  Floats x = arguments(-87, 40);
  for (float& value : x) value = std::isnan(value) ? value : std::fmax(value, -87.0f);
  check_accuracy("sigmoid", kernels.sigmoid, x, 2.5,
                 [](double v) { return 1.0 / (1.0 + std::exp(-v)); });
  check_log(kernels);
}

void check_rope_table(const VectorKernels& kernels) {
  constexpr int pairs = 64;
  double frequencies[pairs];
  for (int i = 0; i < pairs; ++i) frequencies[i] = std::pow(10000.0, -2.0 * i / 128);
  Floats cosine(pairs), sine(pairs);
  for (int position : {0, 1, 2, 777, 4095, 131071, 999983, 1000000}) {
    kernels.rope_table(position, frequencies, pairs, 1.25f, cosine.data(), sine.data());
    for (int i = 0; i < pairs; ++i) {
      const long double angle = double(position) * frequencies[i];
      const double c = double(std::cos(angle)) * 1.25, s = double(std::sin(angle)) * 1.25;
      expect(std::fabs(cosine[size_t(i)] - c) <= 1.3 * 0x1p-24, "cos %d %d", position, i);
      expect(std::fabs(sine[size_t(i)] - s) <= 1.3 * 0x1p-24, "sin %d %d", position, i);
    }
  }
}

double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double sign = half >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * std::ldexp(exponent ? 1024 + mantissa : mantissa, (exponent ? exponent : 1) - 25);
}

Halves store_half(const VectorKernels& kernels, const Floats& x) {
  Halves out(x.size());
  kernels.store_half(x.data(), int(x.size()), out.data());
  return out;
}

Floats load_half(const VectorKernels& kernels, const Halves& x) {
  Floats out(x.size());
  kernels.load_half(x.data(), int(x.size()), out.data());
  return out;
}

void check_half(const VectorKernels& kernels) {
  Halves all(65536);
  for (uint32_t i = 0; i < 65536; ++i) all[i] = uint16_t(i);
  const Floats values = load_half(kernels, all);
  const Halves back = store_half(kernels, values);
  for (uint32_t i = 0; i < 65536; ++i) {
    const double exact = half_value(all[i]);
    const bool nan = std::isnan(exact);
    expect(nan ? std::isnan(values[i]) : double(values[i]) == exact, "half %04x loads", i);
    expect(back[i] == (nan ? i | 0x200u : i), "half %04x round trip gives %04x", i, back[i]);
  }
  for (uint32_t i = 0; i < 0x7bff; ++i) {  // midpoints go to even, their neighbours to the nearer
    const float middle = float((half_value(uint16_t(i)) + half_value(uint16_t(i + 1))) / 2);
    const Floats x{middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f), -middle};
    const Halves out = store_half(kernels, x);
    const uint32_t even = i + (i & 1);
    expect(out[0] == even && out[1] == i && out[2] == i + 1 && out[3] == (even | 0x8000u),
           "rounding above half %04x", i);
  }
  const Halves ends = store_half(kernels, {65519.996f, 65520.0f, -1e30f, 2.9e-8f, 3e-8f, -1e-30f});
  expect(ends == Halves({0x7bff, 0x7c00, 0xfc00, 0, 1, 0x8000}), "half overflow and underflow");
}

void check_norm(const VectorKernels& kernels, int width) {
  const Floats x = normal(size_t(3 * width), 2.0f), weight = normal(size_t(width));
  Floats out(x.size()), plain(x.size());
  kernels.rms_norm(x.data(), weight.data(), 1e-5f, 3, width, out.data());
  kernels.rms_norm(x.data(), nullptr, 1e-5f, 3, width, plain.data());
  // Half the relative error of the sum (width / 16 + 5 roundings), and 5 more of one each.
  const double tolerance = (0.5 * (width / 16 + 5) + 5) * 0x1p-24;
  for (int group = 0; group < 3; ++group) {
    double squares = 0.0;
    for (int i = 0; i < width; ++i) squares += std::pow(double(x[size_t(group * width + i)]), 2);
    const double factor = 1.0 / std::sqrt(squares / width + double(1e-5f));
    for (int i = 0; i < width; ++i) {
      const size_t at = size_t(group * width + i);
      const double exact = x[at] * factor, weighted = exact * weight[size_t(i)];
      expect(std::fabs(plain[at] - exact) <= std::fabs(exact) * tolerance, "norm %d", width);
      expect(std::fabs(out[at] - weighted) <= std::fabs(weighted) * tolerance, "norm %d", width);
    }
  }
  Floats in_place = x;
  kernels.rms_norm(in_place.data(), weight.data(), 1e-5f, 3, width, in_place.data());
  expect(same(in_place, out), "rms_norm in place, width %d", width);
}

void check_rope(const VectorKernels& kernels, int head_dim, int rotary, bool neox) {
  constexpr int heads = 3;
  const int pairs = rotary / 2;
  const Floats x = normal(size_t(heads * head_dim)), angle = normal(size_t(pairs));
  Floats cosine, sine, out(x.size());
  for (float a : angle) cosine.push_back(std::cos(a)), sine.push_back(std::sin(a));
  kernels.rope(x.data(), heads, head_dim, rotary, neox, cosine.data(), sine.data(), out.data());
  for (int head = 0; head < heads; ++head) {
    const size_t base = size_t(head * head_dim);
    for (int i = 0; i < pairs; ++i) {
      const size_t first = base + size_t(neox ? i : 2 * i);
      const size_t second = base + size_t(neox ? i + pairs : 2 * i + 1), pair = size_t(i);
      const double c = cosine[pair], s = sine[pair], size = std::hypot(x[first], x[second]);
      expect(std::fabs(out[first] - (x[first] * c - x[second] * s)) <= size * 0x1p-23 &&
                 std::fabs(out[second] - (x[first] * s + x[second] * c)) <= size * 0x1p-23,
             "rope dim %d rotary %d neox %d", head_dim, rotary, neox);
    }
    for (size_t i = base + size_t(rotary); i < base + size_t(head_dim); ++i)
      expect(out[i] == x[i], "rope must copy the rest");
  }
  Floats in_place = x;
  kernels.rope(in_place.data(), heads, head_dim, rotary, neox, cosine.data(), sine.data(),
               in_place.data());
  expect(same(in_place, out), "rope in place");
}

double gelu(double x) {
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * inner));
}

void check_gated(const VectorKernels& kernels, int width) {
  const Floats gate = normal(size_t(width), 4.0f), up = normal(size_t(width));
  Floats silu(gate.size()), gelus(gate.size()), capped(gate.size());
  kernels.gated(Activation::silu, gate.data(), up.data(), width, silu.data());
  kernels.gated(Activation::gelu_tanh, gate.data(), up.data(), width, gelus.data());
  kernels.softcap(gate.data(), 3.0f, width, capped.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i], u = up[i];
    const double s = x / (1.0 + std::exp(-x)) * u, g = gelu(x) * u, c = 3.0 * std::tanh(x / 3.0);
    // The exponent 2y of gelu carries 3 relative roundings, so they count |2y| times.
    const double exponent = std::fabs(1.6 * x + 0.0714 * x * x * x);
    expect(std::fabs(silu[i] - s) <= std::fabs(s) * 5 * 0x1p-24, "silu(%g)", x);
    expect(std::fabs(gelus[i] - g) <= std::fabs(g) * (6 + 3 * exponent) * 0x1p-24 + 1e-37,
           "gelu(%g)", x);
    expect(std::fabs(capped[i] - c) <= std::fabs(c) * 6 * 0x1p-24, "softcap(%g)", x);
  }
}

// Every element-wise kernel on one row, end to end, for comparing levels.
Floats all_outputs(const VectorKernels& kernels, const Floats& a, const Floats& b) {
  const int n = int(a.size());
  constexpr size_t guard = 16;
  Floats out((a.size() + guard) * 12, 7.0f);
  float* next = out.data();
  const auto place = [&] { return std::exchange(next, next + a.size() + guard); };
  kernels.rms_norm(a.data(), b.data(), 1e-6f, 1, n, place());
  kernels.rms_norm(a.data(), nullptr, 1e-6f, 1, n, place());
  kernels.rope(a.data(), 1, n, n / 2 * 2, true, b.data(), b.data() + n / 2, place());
  kernels.rope(a.data(), 1, n, n / 2 * 2, false, b.data(), b.data() + n / 2, place());
  kernels.add(a.data(), b.data(), n, place());
  kernels.scale(a.data(), 0.3f, n, place());
  kernels.softcap(a.data(), 30.0f, n, place());
  kernels.gated(Activation::silu, a.data(), b.data(), n, place());
  kernels.gated(Activation::gelu_tanh, a.data(), b.data(), n, place());
  kernels.exp(a.data(), n, place());
  kernels.tanh(a.data(), n, place());
  kernels.sigmoid(a.data(), n, place());
  for (size_t row = 0; row < 12; ++row)
    for (size_t i = 0; i < guard; ++i) {
      const float after = out[row * (a.size() + guard) + a.size() + i];
      expect(after == 7.0f, "row %zu is written past its end", row);
    }
  return out;
}

void compare_levels(const Floats& a, const Floats& b, const char* what) {
  const auto all = levels();
  const Floats expected = all_outputs(*all[0], a, b);
  const Halves halves = store_half(*all[0], a);
  const Floats loaded = load_half(*all[0], halves);
  for (const auto* level : all) {
    expect(same(all_outputs(*level, a, b), expected), "%s differs on %s", level->isa, what);
    expect(store_half(*level, a) == halves, "store_half of %s on %s", level->isa, what);
    const Floats other = load_half(*level, halves);
    expect(std::memcmp(other.data(), loaded.data(), loaded.size() * sizeof(float)) == 0,
           "load_half of %s on %s", level->isa, what);
  }
}

}  // namespace

void check_math() {
  for (const auto* level : levels()) {
    std::printf("-- %s\n", level->isa);
    check_functions(*level);
    check_rope_table(*level);
    check_half(*level);
  }
  const Floats x = any_bits(1 << 18);
  for (const auto* level : levels()) {
    expect(same(apply(level->exp, x), apply(levels()[0]->exp, x)), "exp of %s", level->isa);
    for (float value : x) {
      const double ours = level->log(double(value)), reference = levels()[0]->log(double(value));
      expect(ours == reference || ours != ours, "log of %s at %a", level->isa, double(value));
    }
  }
}

void check_elementwise() {
  for (const auto* level : levels()) {
    for (int width : kWidths) check_norm(*level, width), check_gated(*level, width);
    for (bool neox : {false, true})
      for (int head_dim : {32, 64, 80, 128, 256})
        for (int rotary : {head_dim, head_dim / 2, 20}) check_rope(*level, head_dim, rotary, neox);
  }
  for (int width : kWidths) {
    compare_levels(normal(size_t(width), 3.0f), normal(size_t(width)), "normal rows");
    compare_levels(any_bits(size_t(width)), any_bits(size_t(width)), "arbitrary bits");
  }
}

}  // namespace slipstream::check
