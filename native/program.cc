#include "program.hh"

#include <algorithm>
#include <limits>

namespace slipstream {
namespace {

bool same_table(const RopeTable& a, const RopeTable& b) {
  return a.neox == b.neox && a.rotary_width == b.rotary_width && a.magnitude == b.magnitude &&
         a.frequencies == b.frequencies;
}

}  // namespace

int Program::value(int width, RowSet set) {
  if (width <= 0 || width > (1 << 28)) refuse("a value needs a positive width");
  const int index = buffer(aligned(sizeof(float) * static_cast<size_t>(width)), false, set, width);
  buffers[index].is_value = true;
  return index;
}

void Program::add_group(LayerGroup group) {
  groups.push_back(group);
  group_windows.push_back(-1);
  group_heads.push_back(1);
}

int Program::check_value(int value, const char* what) const {
  if (value < 0 || value >= static_cast<int>(buffers.size()) || !buffers[value].is_value) {
    refuse(std::string(what) + " is not a value of this program");
  }
  return value;
}

int Program::check_read(int value, int width, const char* what) const {
  const Extent& extent = buffers[check_value(value, what)];
  if (!extent.written) refuse(std::string(what) + " is read before it is written");
  if (width > 0 && extent.width != width) {
    refuse(std::string(what) + " has width " + std::to_string(extent.width) + ", not " +
           std::to_string(width));
  }
  return value;
}

// The width of all heads; the product of two ints may not fit one.
int Program::width_of(int heads, int head_dim) {
  const int64_t width = int64_t{heads} * head_dim;
  if (width > std::numeric_limits<int>::max()) refuse("heads * head_dim is too large");
  return static_cast<int>(width);
}

int Program::check_write(int value, int width, RowSet set) {
  Extent& extent = buffers[check_value(value, "out")];
  if (extent.written) refuse("a value is written twice");
  if (extent.width != width) {
    refuse("out has width " + std::to_string(extent.width) + ", not " + std::to_string(width));
  }
  if (extent.set != set) refuse("out belongs to another row set than the operands");
  extent.written = true;
  return value;
}

int Program::node(std::string label, std::vector<int> reads, int writes, RowSet set) {
  for (const int read : reads) {
    if (buffers[read].set != set) refuse("the operands belong to different row sets");
  }
  Node made;
  made.label = std::move(label);
  made.reads = std::move(reads);
  made.writes = writes;
  made.set = set;
  nodes.push_back(std::move(made));
  return static_cast<int>(nodes.size()) - 1;
}

int Program::buffer(size_t row_bytes, bool blocks, RowSet set, int width) {
  buffers.push_back(Extent{row_bytes, blocks, set, width, false});
  return static_cast<int>(buffers.size()) - 1;
}

void Program::touch(int buffer, int phase) {
  Extent& extent = buffers[buffer];
  if (extent.first_phase < 0) extent.first_phase = phase;
  extent.last_phase = phase;
}

RowPhase& Program::row_phase(RowSet set, bool fresh) {
  if (open_ == nullptr || open_->set != set || fresh) {
    auto made = std::make_unique<RowPhase>(set);
    open_ = made.get();
    phases.push_back(std::move(made));
  }
  return *open_;
}

void Program::begin_tokens(int rows) {
  if (vocabulary != 0 && vocabulary != rows) refuse("two embeddings have different vocabularies");
  vocabulary = rows;
}

void Program::embed_packed(int out, std::shared_ptr<const Matrix> matrix, float scale) {
  check_write(out, matrix->columns, RowSet::all);
  begin_tokens(matrix->rows);
  const std::string label = std::string("embed/") + weight_traits(matrix->type)->name;
  row_op<EmbedPacked>(node(path(label), {}, out, RowSet::all), false, out, matrix, scale);
}

void Program::embed_source(int out, std::shared_ptr<const SourceRows> source, float scale) {
  check_write(out, source->columns, RowSet::all);
  begin_tokens(source->rows);
  const std::string label = std::string("embed/") + weight_traits(source->type)->name;
  row_op<EmbedSource>(node(path(label), {}, out, RowSet::all), false, out, source, scale);
}

void Program::input(int out, const std::string& name) {
  const int width = buffers[check_value(out, "out")].width;
  check_write(out, width, RowSet::all);
  inputs.push_back(name);
  input_widths.push_back(width);
  const int index = static_cast<int>(inputs.size()) - 1;
  row_op<CopyInput>(node("input", {}, out, RowSet::all), false, out, index, width);
}

void Program::rms_norm(int out, int x, std::vector<float> weight, float epsilon, int group_width) {
  const int width = buffers[check_read(x, 0, "x")].width;
  if (group_width <= 0 || width % group_width != 0) refuse("group_width must divide the width");
  if (!weight.empty() && static_cast<int>(weight.size()) != group_width) {
    refuse("the norm's weight must have group_width elements");
  }
  const RowSet set = buffers[x].set;
  check_write(out, width, set);
  row_op<RmsNorm>(node(path("rms_norm"), {x}, out, set), false, out, x, std::move(weight), epsilon,
                  width / group_width, group_width);
}

void Program::rope(int out, int x, int heads, int head_dim, const RopeTable& table) {
  if (heads <= 0 || head_dim <= 0) refuse("heads and head_dim must be positive");
  const int width = width_of(heads, head_dim);
  check_read(x, width, "x");
  const int pairs = static_cast<int>(table.frequencies.size());
  if (pairs == 0 || pairs * 2 != table.rotary_width || table.rotary_width > head_dim) {
    refuse("a rotary table needs rotary_width / 2 frequencies, within a head");
  }
  check_write(out, width, RowSet::all);
  int filled = -1;
  for (const auto& [known, made] : tables_) {
    if (same_table(known, table)) filled = made;
  }
  if (filled < 0) {
    filled = buffer(aligned(2 * sizeof(float) * static_cast<size_t>(pairs)), false, RowSet::all, 0);
    row_op<FillRopeTable>(node(path("rope_table"), {}, filled, RowSet::all), false, filled, table);
    tables_.emplace_back(table, filled);
  }
  row_op<Rope>(node(path("rope"), {x, filled}, out, RowSet::all), false, out, x, filled, heads,
               head_dim, table.rotary_width, table.neox);
}

void Program::attention(int out, int query, int key, int value,
                        const AttentionPhase::Shape& shape) {
  if (shape.group < 0 || shape.group >= static_cast<int>(groups.size())) {
    refuse("attention names a layer group that the memory does not have");
  }
  const LayerGroup& group = groups[shape.group];
  const bool fits = group.kv_heads == shape.kv_heads && group.head_dim == shape.head_dim;
  if (!fits || shape.layer < 0 || shape.layer >= group.layers) {
    refuse("attention does not fit its layer group");
  }
  if (shape.heads <= 0 || shape.heads % shape.kv_heads != 0) {
    refuse("heads must be a multiple of kv_heads");
  }
  if (shape.window < 0) refuse("a window must be positive, or 0 for none");
  check_read(query, width_of(shape.heads, shape.head_dim), "query");
  check_read(key, width_of(shape.kv_heads, shape.head_dim), "key");
  check_read(value, width_of(shape.kv_heads, shape.head_dim), "value");
  check_write(out, width_of(shape.heads, shape.head_dim), RowSet::all);
  int& widest = group_windows[shape.group];
  widest = widest == 0 || shape.window == 0 ? 0 : std::max(widest, shape.window);
  int& heads = group_heads[shape.group];
  heads = std::max(heads, shape.heads / shape.kv_heads);
  const int store = node(path("store_keys"), {key, value}, -1, RowSet::all);
  nodes[store].always = true;
  row_op<StoreKeys>(store, false, key, value, shape.group, shape.layer);
  const char* kernel = group.type == KvType::q8_0 ? "attention-q8_0" : "attention";
  const int attend = node(path(kernel), {query}, out, RowSet::all);
  touch(query, static_cast<int>(phases.size()));
  touch(out, static_cast<int>(phases.size()));
  phases.push_back(std::make_unique<AttentionPhase>(attend, out, query, shape));
  open_ = nullptr;
  const size_t floats =
      attention_rows_scratch_floats(kSpanRows, shape.heads / shape.kv_heads, shape.head_dim);
  scratch_bytes = std::max(scratch_bytes, aligned(sizeof(float) * floats));
}

void Program::add(int out, int a, int b) {
  const int width = buffers[check_read(a, 0, "a")].width;
  check_read(b, width, "b");
  const RowSet set = buffers[a].set;
  check_write(out, width, set);
  row_op<Add>(node(path("add"), {a, b}, out, set), false, out, a, b, width);
}

void Program::scale(int out, int x, float factor) {
  const int width = buffers[check_read(x, 0, "x")].width;
  const RowSet set = buffers[x].set;
  check_write(out, width, set);
  row_op<Scale>(node(path("scale"), {x}, out, set), false, out, x, factor, width);
}

void Program::softcap(int out, int x, float cap) {
  if (!(cap > 0)) refuse("a soft cap must be positive");
  const int width = buffers[check_read(x, 0, "x")].width;
  const RowSet set = buffers[x].set;
  check_write(out, width, set);
  row_op<Softcap>(node(path("softcap"), {x}, out, set), false, out, x, cap, width);
}

void Program::gated(int out, int gate, int up, Activation activation) {
  const int width = buffers[check_read(gate, 0, "gate")].width;
  check_read(up, width, "up");
  const RowSet set = buffers[gate].set;
  check_write(out, width, set);
  row_op<Gated>(node(path("gated"), {gate, up}, out, set), false, out, gate, up, activation, width);
}

void Program::gather(int out, int x) {
  const int width = buffers[check_read(x, 0, "x")].width;
  if (buffers[x].set != RowSet::all) refuse("gather reads a value of all rows");
  check_write(out, width, RowSet::logits);
  const int made = node("gather", {}, out, RowSet::logits);
  nodes[made].reads.push_back(x);
  row_op<Gather>(made, true, out, x, width);
}

void Program::output(const std::string& name, int x) {
  const int width = buffers[check_read(x, 0, "x")].width;
  for (const std::string& known : outputs) {
    if (known == name) refuse("two outputs are named " + name);
  }
  const int index = static_cast<int>(outputs.size());
  outputs.push_back(name);
  output_values.push_back(x);
  if (buffers[x].output < 0) buffers[x].output = index;
  const int made = node("output", {x}, -1, buffers[x].set);
  nodes[made].output = index;
  row_op<Deliver>(made, false, x, index, width);
}

}  // namespace slipstream
