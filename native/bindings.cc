// The only file that sees Python: checks of shapes and types, and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "executor.hh"
#include "float_mode.hh"
#include "peaks.hh"
#include "probes.hh"

namespace nb = nanobind;

namespace slipstream {
namespace {

template <typename Scalar, size_t Dimensions>
using Array = nb::ndarray<Scalar, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
using Bytes = Array<const uint8_t, 1>;
using Ints = Array<const int32_t, 1>;
using Table = Array<const int32_t, 2>;
using Floats = Array<const float, 1>;
using FloatRows = Array<const float, 2>;
using OutputRows = Array<float, 2>;
using Halves = Array<uint16_t, 5>;
using Fields = std::vector<std::tuple<int, int, uint32_t>>;

void require(bool condition, const std::string& reason) {
  if (!condition) throw std::invalid_argument(reason);
}

int to_int(size_t size) {
  require(size <= static_cast<size_t>(std::numeric_limits<int>::max()), "an array is too large");
  return static_cast<int>(size);
}

std::vector<ScaleField> to_fields(const Fields& fields) {
  std::vector<ScaleField> made;
  for (const auto& [offset, width, exponent] : fields) made.push_back({offset, width, exponent});
  return made;
}

std::vector<float> to_vector(const std::optional<Floats>& values) {
  if (!values) return {};
  return std::vector<float>(values->data(), values->data() + values->size());
}

// Rows of the file, with the array that keeps them mapped.
struct HeldSource {
  Bytes data;
  std::shared_ptr<SourceRows> rows;
};

HeldSource hold_source(int type, Bytes data, int rows, int columns, bool mapped) {
  require(rows > 0, "a matrix needs at least one row");
  const auto kind = static_cast<WeightType>(type);
  const size_t row_bytes = source_row_bytes(kind, columns);
  require(data.size() == row_bytes * static_cast<size_t>(rows),
          "the data has " + std::to_string(data.size()) + " bytes, not " +
              std::to_string(row_bytes * static_cast<size_t>(rows)));
  auto source = std::make_shared<SourceRows>(
      SourceRows{kind, rows, columns, row_bytes, data.data(), mapped});
  return {std::move(data), std::move(source)};
}

Precision to_precision(const std::string& name) {
  require(name == "a8" || name == "a16", "a precision is a8 or a16, not " + name);
  return name == "a8" ? Precision::a8 : Precision::a16;
}

struct Builder {
  Program program;
  std::vector<Halves> kept;
  std::vector<Bytes> sources;
  bool taken = false;

  Builder(const std::string& isa, const std::string& precision)
      : program(level(isa), to_precision(precision)) {}

  Program& open() {
    require(!taken, "this builder's program was made already");
    return program;
  }

  void add_group(Halves keys, Halves values, KvType type) {
    for (int axis = 0; axis < 5; ++axis) {
      require(keys.shape(axis) == values.shape(axis), "keys and values differ in shape");
      require(keys.shape(axis) > 0, "a layer group needs at least one of everything");
    }
    require(keys.shape(3) == kPagePositions, "a page holds 64 positions");
    const int row = to_int(keys.shape(4));
    require(type == KvType::f16 || row % kQ8BlockHalves == 0,
            "a q8_0 row is whole blocks of " + std::to_string(kQ8BlockHalves) + " halves");
    const int head_dim = type == KvType::f16 ? row : row / kQ8BlockHalves * kQ8BlockElements;
    open().add_group({keys.data(), values.data(), to_int(keys.shape(0)), to_int(keys.shape(1)),
                      to_int(keys.shape(2)), head_dim, type});
    kept.push_back(std::move(keys));
    kept.push_back(std::move(values));
  }
};

using MemberTuple =
    std::tuple<int, std::shared_ptr<Matrix>, std::optional<Floats>, std::optional<int>>;

void linear_group(Builder& builder, int x, const std::vector<MemberTuple>& members) {
  std::vector<Member> made;
  for (const auto& [out, weight, bias, residual] : members) {
    require(weight != nullptr, "a linear needs a matrix");
    require(!bias || bias->size() > 0, "a bias must have one element per output");
    made.push_back({out, weight, to_vector(bias), residual.value_or(-1)});
  }
  builder.open().linear_group(x, made);
}

RopeTable to_table(bool neox, int rotary_width, const std::vector<double>& frequencies,
                   float magnitude) {
  return {neox, rotary_width, frequencies, magnitude};
}

class BoundProgram {
 public:
  BoundProgram(std::shared_ptr<Pool> pool, Builder& builder)
      : kept_(std::move(builder.kept)),
        sources_(std::move(builder.sources)),
        executor_(std::move(pool), std::move(builder.open())) {
    builder.taken = true;
  }

  void run(const std::optional<Ints>& tokens, const Ints& positions, const Ints& slots,
           const Ints& table, const Ints& identity, const Ints& tail_start, const Ints& tail_count,
           const Ints& tail, const std::vector<Table>& tables, const Ints& logit_rows,
           const std::vector<FloatRows>& vectors,
           const std::vector<std::optional<OutputRows>>& outputs) {
    Rows rows;
    rows.count = to_int(positions.size());
    rows.positions = positions.data();
    rows.tokens = tokens ? per_row(*tokens, rows, "tokens") : nullptr;
    rows.slots = per_row(slots, rows, "slots");
    rows.table = per_row(table, rows, "table");
    rows.identity = per_row(identity, rows, "identity");
    rows.tail_start = per_row(tail_start, rows, "tail_start");
    rows.tail_count = per_row(tail_count, rows, "tail_count");
    rows.tail = tail.data();
    rows.tail_size = to_int(tail.size());
    rows.logit_rows = logit_rows.data();
    rows.logits = to_int(logit_rows.size());
    add_tables(rows, tables);
    add_vectors(rows, vectors);
    add_outputs(rows, outputs);
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> lock(mutex_);
    executor_.run(rows);
  }

  std::map<std::string, int64_t> counts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return executor_.counts();
  }

  void profile(bool on) {
    const std::lock_guard<std::mutex> lock(mutex_);
    executor_.profile(on);
  }

  std::vector<double> phase_seconds() {
    const std::lock_guard<std::mutex> lock(mutex_);
    require(executor_.profile() != nullptr, "the program is not profiled");
    return executor_.profile()->seconds();
  }

  const Executor& executor() const { return executor_; }

 private:
  static const int32_t* per_row(const Ints& array, const Rows& rows, const char* name) {
    require(to_int(array.size()) == rows.count, std::string(name) + " needs one number per row");
    return array.data();
  }

  void add_tables(Rows& rows, const std::vector<Table>& tables) const {
    require(tables.size() == executor_.program().groups.size(),
            "a step needs one page table per layer group");
    for (const Table& table : tables) {
      rows.tables.push_back({table.data(), to_int(table.shape(0)), to_int(table.shape(1))});
    }
  }

  void add_vectors(Rows& rows, const std::vector<FloatRows>& vectors) const {
    const std::vector<int>& widths = executor_.program().input_widths;
    require(vectors.size() == widths.size(), "a step needs one array per input of the program");
    for (size_t index = 0; index < vectors.size(); ++index) {
      const bool fits = to_int(vectors[index].shape(0)) == rows.count &&
                        to_int(vectors[index].shape(1)) == widths[index];
      require(fits, "input " + executor_.program().inputs[index] + " needs shape [rows, " +
                        std::to_string(widths[index]) + "]");
      rows.vectors.push_back(vectors[index].data());
    }
  }

  void add_outputs(Rows& rows, const std::vector<std::optional<OutputRows>>& outputs) const {
    const Program& program = executor_.program();
    require(outputs.size() == program.outputs.size(),
            "a step needs one array or None per output of the program");
    for (size_t index = 0; index < outputs.size(); ++index) {
      const Program::Extent& value = program.buffers[program.output_values[index]];
      const int count = value.set == RowSet::all ? rows.count : rows.logits;
      const bool fits = !outputs[index] || (to_int(outputs[index]->shape(0)) == count &&
                                            to_int(outputs[index]->shape(1)) == value.width);
      require(fits, "output " + program.outputs[index] + " needs shape [" + std::to_string(count) +
                        ", " + std::to_string(value.width) + "]");
      rows.outputs.push_back(outputs[index] && count > 0 ? outputs[index]->data() : nullptr);
    }
  }

  std::mutex mutex_;
  std::vector<Halves> kept_;
  std::vector<Bytes> sources_;
  Executor executor_;
};

int row_size(const Floats& row) {
  require(row.size() > 0, "a row of logits is empty");
  return to_int(row.size());
}

int sample(const Floats& row, double temperature, int top_k, double top_p, double min_p,
           uint64_t seed, uint64_t index, const std::string& isa) {
  require(std::isfinite(temperature) && temperature > 0, "temperature must be positive");
  require(top_k >= 0, "top_k must not be negative");
  require(top_p > 0 && top_p <= 1, "top_p must be in (0, 1]");
  require(min_p >= 0 && min_p <= 1, "min_p must be in [0, 1]");
  thread_local std::vector<std::pair<float, int32_t>> scratch;
  if (scratch.size() < row.size()) scratch.resize(row.size());
  const FloatMode mode;
  return level(isa).vectors->sample(row.data(), row_size(row),
                                    {temperature, top_k, top_p, min_p, seed, index},
                                    scratch.data());
}

void bind_primitives(nb::module_& module) {
  using namespace nb::literals;
  module.def("isa_levels", [] {
    std::vector<std::string> names;
    for (const Level& found : levels()) names.emplace_back(found.name);
    return names;
  });
  module.def("argmax", [](const Floats& row, const std::string& isa) {
    const FloatMode mode;
    return level(isa).vectors->argmax(row.data(), row_size(row));
  }, nb::arg("row").noconvert(), "isa"_a);
  module.def("log_sum_exp", [](const Floats& row, const std::string& isa) {
    const FloatMode mode;
    return level(isa).vectors->log_sum_exp(row.data(), row_size(row));
  }, nb::arg("row").noconvert(), "isa"_a);
  module.def("sample", &sample, nb::arg("row").noconvert(), "temperature"_a, "top_k"_a, "top_p"_a,
             "min_p"_a, "seed"_a, "index"_a, "isa"_a);
  module.def("read_bandwidth", &read_bandwidth, "bytes"_a, "threads"_a, "rounds"_a = 3,
             "streams"_a = 1, nb::call_guard<nb::gil_scoped_release>());
  module.def("multiply_mixes", &multiply_mixes);
  module.def("multiply_peak", &multiply_peak, "isa"_a, "mix"_a, "threads"_a,
             nb::call_guard<nb::gil_scoped_release>());
}

using MatrixPair = std::pair<std::shared_ptr<Matrix>, std::shared_ptr<Matrix>>;

void bind_weights(nb::module_& module) {
  using namespace nb::literals;
  module.def("has_kernels",
             [](int type) { return weight_traits(static_cast<WeightType>(type)) != nullptr; },
             "type_id"_a);
  module.def("matrix_bytes", [](int type, int rows, int columns) {
    return matrix_bytes(static_cast<WeightType>(type), rows, columns);
  }, "type_id"_a, "rows"_a, "columns"_a);
  nb::class_<Pool>(module, "Pool")
      .def(nb::init<int>(), "threads"_a)
      .def_prop_ro("threads", &Pool::threads);
  nb::class_<Arena>(module, "Arena")
      .def(nb::init<size_t>(), "bytes"_a)
      .def_prop_ro("bytes", &Arena::bytes)
      .def_prop_ro("address", [](const Arena& self) {
        return reinterpret_cast<uintptr_t>(self.base());
      });
  nb::class_<Matrix>(module, "Matrix")
      .def_prop_ro("type_id", [](const Matrix& self) { return static_cast<int>(self.type); })
      .def_ro("rows", &Matrix::rows)
      .def_ro("columns", &Matrix::columns)
      .def_prop_ro("bytes", [](const Matrix& self) {
        return static_cast<size_t>(self.strips) * strip_bytes(self.type, self.columns);
      });
  nb::class_<HeldSource>(module, "SourceRows")
      .def("__init__", [](HeldSource* self, int type, Bytes data, int rows, int columns,
                          bool mapped) {
        new (self) HeldSource(hold_source(type, std::move(data), rows, columns, mapped));
      }, "type_id"_a, nb::arg("data").noconvert(), "rows"_a, "columns"_a, "mapped"_a = false)
      .def_prop_ro("rows", [](const HeldSource& self) { return self.rows->rows; })
      .def_prop_ro("columns", [](const HeldSource& self) { return self.rows->columns; });
  module.def("finite_scales", [](Pool& pool, const HeldSource& source, const Fields& fields) {
    const nb::gil_scoped_release release;
    return finite_scales(pool, *source.rows, to_fields(fields));
  }, "pool"_a, "source"_a, "fields"_a);
  module.def("pack", [](Pool& pool, std::shared_ptr<Arena> arena, const HeldSource& source,
                        const Fields& fields, const std::string& isa) {
    const nb::gil_scoped_release release;
    return pack_matrix(pool, level(isa), std::move(arena), *source.rows, to_fields(fields));
  }, "pool"_a, "arena"_a, "source"_a, "fields"_a, "isa"_a);
  module.def("pack_pair", [](Pool& pool, std::shared_ptr<Arena> arena, const HeldSource& first,
                             const Fields& first_fields, const HeldSource& second,
                             const Fields& second_fields, const std::string& isa) -> MatrixPair {
    const nb::gil_scoped_release release;
    return pack_pair(pool, level(isa), std::move(arena), *first.rows, to_fields(first_fields),
                     *second.rows, to_fields(second_fields));
  }, "pool"_a, "arena"_a, "first"_a, "first_fields"_a, "second"_a, "second_fields"_a, "isa"_a);
}

void bind_builder(nb::module_& module) {
  using namespace nb::literals;
  using MatrixPointer = std::shared_ptr<Matrix>;
  nb::enum_<Activation>(module, "Activation")
      .value("silu", Activation::silu)
      .value("gelu_tanh", Activation::gelu_tanh);
  nb::enum_<KvType>(module, "KvType").value("f16", KvType::f16).value("q8_0", KvType::q8_0);
  nb::class_<Builder>(module, "ProgramBuilder")
      .def(nb::init<const std::string&, const std::string&>(), "isa"_a, "precision"_a = "a8")
      .def("value", [](Builder& self, int width, bool all_rows) {
        return self.open().value(width, all_rows ? RowSet::all : RowSet::logits);
      }, "width"_a, "all_rows"_a)
      .def("group", &Builder::add_group, nb::arg("keys").noconvert(), nb::arg("values").noconvert(),
           "kv_type"_a)
      .def("embed_packed", [](Builder& self, int out, MatrixPointer matrix, float scale) {
        self.open().embed_packed(out, std::move(matrix), scale);
      }, "out"_a, "matrix"_a, "scale"_a)
      .def("embed_source", [](Builder& self, int out, const HeldSource& source, float scale) {
        self.open().embed_source(out, source.rows, scale);
        self.sources.push_back(source.data);
      }, "out"_a, "source"_a, "scale"_a)
      .def("input", [](Builder& self, int out, const std::string& name) {
        self.open().input(out, name);
      }, "out"_a, "name"_a)
      .def("rms_norm", [](Builder& self, int out, int x, const std::optional<Floats>& weight,
                          float epsilon, int group_width) {
        self.open().rms_norm(out, x, to_vector(weight), epsilon, group_width);
      }, "out"_a, "x"_a, nb::arg("weight").noconvert().none(), "epsilon"_a, "group_width"_a)
      .def("linear_group", &linear_group, "x"_a, nb::arg("members").noconvert())
      .def("gated_linear", [](Builder& self, int out, int x, MatrixPointer gate, MatrixPointer up,
                              Activation activation) {
        self.open().gated_linear(out, x, std::move(gate), std::move(up), activation);
      }, "out"_a, "x"_a, "gate"_a, "up"_a, "activation"_a)
      .def("rope", [](Builder& self, int out, int x, int heads, int head_dim, bool neox,
                      int rotary_width, const std::vector<double>& frequencies, float magnitude) {
        self.open().rope(out, x, heads, head_dim,
                         to_table(neox, rotary_width, frequencies, magnitude));
      }, "out"_a, "x"_a, "heads"_a, "head_dim"_a, "neox"_a, "rotary_width"_a, "frequencies"_a,
           "magnitude"_a)
      .def("attention", [](Builder& self, int out, int query, int key, int value, int group,
                           int layer, int heads, int kv_heads, int head_dim, float scale,
                           int window) {
        self.open().attention(out, query, key, value,
                              {group, layer, heads, kv_heads, head_dim, scale, window});
      }, "out"_a, "query"_a, "key"_a, "value"_a, "group"_a, "layer"_a, "heads"_a, "kv_heads"_a,
           "head_dim"_a, "scale"_a, "window"_a)
      .def("add", [](Builder& self, int out, int a, int b) { self.open().add(out, a, b); },
           "out"_a, "a"_a, "b"_a)
      .def("scale", [](Builder& self, int out, int x, float factor) {
        self.open().scale(out, x, factor);
      }, "out"_a, "x"_a, "factor"_a)
      .def("softcap", [](Builder& self, int out, int x, float cap) {
        self.open().softcap(out, x, cap);
      }, "out"_a, "x"_a, "cap"_a)
      .def("gated", [](Builder& self, int out, int gate, int up, Activation activation) {
        self.open().gated(out, gate, up, activation);
      }, "out"_a, "gate"_a, "up"_a, "activation"_a)
      .def("gather", [](Builder& self, int out, int x) { self.open().gather(out, x); },
           "out"_a, "x"_a)
      .def("output", [](Builder& self, const std::string& name, int x) {
        self.open().output(name, x);
      }, "name"_a, "x"_a);
}

using MatrixShape = std::tuple<int, int, int>;  // type, rows, columns
using PhaseTuple = std::tuple<std::string, std::vector<std::string>, std::vector<MatrixShape>>;

void bind_program(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<BoundProgram>(module, "Program")
      .def(nb::init<std::shared_ptr<Pool>, Builder&>(), "pool"_a, "builder"_a)
      .def("run", &BoundProgram::run, nb::arg("tokens").noconvert().none(),
           nb::arg("positions").noconvert(), nb::arg("slots").noconvert(),
           nb::arg("table").noconvert(), nb::arg("identity").noconvert(),
           nb::arg("tail_start").noconvert(), nb::arg("tail_count").noconvert(),
           nb::arg("tail").noconvert(), nb::arg("tables").noconvert(),
           nb::arg("logit_rows").noconvert(), nb::arg("vectors").noconvert(),
           nb::arg("outputs").noconvert())
      .def("counts", &BoundProgram::counts)
      .def_prop_ro("workspace_bytes", [](const BoundProgram& self) {
        return self.executor().workspace_bytes();
      })
      .def("profile", &BoundProgram::profile, "on"_a)
      .def("phase_seconds", &BoundProgram::phase_seconds)
      .def("phases", [](const BoundProgram& self) {
        std::vector<PhaseTuple> made;
        for (PhaseDescription& phase : describe_phases(self.executor().program())) {
          std::vector<MatrixShape> shapes;
          for (const auto& matrix : phase.matrices) {
            shapes.emplace_back(static_cast<int>(matrix->type), matrix->rows, matrix->columns);
          }
          made.emplace_back(std::move(phase.kind), std::move(phase.ops), std::move(shapes));
        }
        return made;
      });
}

}  // namespace
}  // namespace slipstream

NB_MODULE(_native, module) {
  module.attr("version") = SLIPSTREAM_VERSION;
  slipstream::bind_primitives(module);
  slipstream::bind_weights(module);
  slipstream::bind_builder(module);
  slipstream::bind_program(module);
}
