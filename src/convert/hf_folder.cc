#include "src/convert/hf_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/core/file_lock.h"
#include "src/text/tokenizer_files.h"
#include "src/weights/safetensors_writer.h"

namespace trine {
namespace {

namespace fs = std::filesystem;

constexpr char kState[] = "conversion.json";

struct ShardFile {
  std::string name;
  std::vector<const ConvertedTensor*> tensors;  // in the order of the file
  std::vector<TensorInfo> infos;                // the same
};

// In the order of the model: the embedding, layer by layer, the rest.
std::vector<const ConvertedTensor*> InModelOrder(const Conversion& plan) {
  const auto place = [](const ConvertedTensor* tensor) {
    const std::string& name = tensor->out.name;
    const size_t at = name.find("layers.");
    const int64_t layer = at == std::string::npos
                              ? (name.find("embed") != std::string::npos ? -1 : 1 << 24)
                              : std::atoll(name.c_str() + at + 7);
    return std::pair(layer, name);
  };
  std::vector<const ConvertedTensor*> ordered;
  for (const ConvertedTensor& tensor : plan.tensors) ordered.push_back(&tensor);
  std::sort(ordered.begin(), ordered.end(),
            [&](const auto* a, const auto* b) { return place(a) < place(b); });
  return ordered;
}

std::string ShardName(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

std::vector<ShardFile> CutShards(const Conversion& plan, int64_t most) {
  std::vector<ShardFile> shards(1);
  int64_t bytes = 0;
  for (const ConvertedTensor* tensor : InModelOrder(plan)) {
    if (bytes > 0 && bytes + tensor->out.bytes > most) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().tensors.push_back(tensor);
    bytes += tensor->out.bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    ShardFile& shard = shards[i];
    shard.name = ShardName(i, shards.size());
    std::sort(shard.tensors.begin(), shard.tensors.end(),
              [](const auto* a, const auto* b) { return SafetensorsBefore(a->out, b->out); });
    for (const ConvertedTensor* tensor : shard.tensors) shard.infos.push_back(tensor->out);
  }
  return shards;
}

std::string IndexText(const std::vector<ShardFile>& shards, int64_t bytes) {
  nlohmann::json index;
  index["metadata"]["total_size"] = bytes;
  for (const ShardFile& shard : shards) {
    for (const TensorInfo& tensor : shard.infos) index["weight_map"][tensor.name] = shard.name;
  }
  return index.dump(2) + "\n";
}

// What a folder was begun from: it is gone on with only by the same.
std::string StateText(const ConvertOptions& options, const WeightStore& store,
                      const std::vector<ShardFile>& shards) {
  nlohmann::json state;
  std::error_code ignored;
  for (const File& file : store.files()) {
    struct stat found = {};
    stat(file.path().c_str(), &found);
    state["source"].push_back({fs::canonical(file.path(), ignored).string(), file.size(),
                               found.st_ino, found.st_ctim.tv_sec, found.st_ctim.tv_nsec});
  }
  state["type"] = options.type ? Info(*options.type).name : "";
  for (const ShardFile& shard : shards) {
    state["shards"].push_back({shard.name, SafetensorsBytes(shard.infos)});
  }
  return state.dump() + "\n";
}

Status WriteText(const fs::path& path, const std::string& text) {
  TRINE_ASSIGN(OutputFile file, OutputFile::Create(path.string()));
  TRINE_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

// The folder while it is made, for one process at a time.
class PartialFolder {
 public:
  static Result<PartialFolder> Open(const std::string& final_path) {
    const fs::path path = final_path + ".partial";
    for (;;) {
      std::error_code error;
      fs::create_directories(path, error);
      const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (error || fd < 0) {
        return BadInput(path.string() +
                        ": cannot create: " + (error ? error.message() : std::strerror(errno)));
      }
      PartialFolder folder(path, final_path, fd);
      const Lock lock = TryLock(fd, path.string());
      if (lock == Lock::kTaken) return folder;
      if (lock == Lock::kBusy) {
        return BadInput(path.string() + " is being written by another process; wait for it");
      }
    }
  }

  PartialFolder(PartialFolder&& other) noexcept
      : path_(std::move(other.path_)),
        final_(std::move(other.final_)),
        lock_(std::exchange(other.lock_, -1)) {}
  PartialFolder& operator=(PartialFolder&&) = delete;
  ~PartialFolder() {
    if (lock_ >= 0) close(lock_);
  }

  const fs::path& path() const { return path_; }

  // Leaves what is there if it was begun with the same state, and nothing of another conversion.
  // An error if it is of none.
  Status Begin(const std::string& state) {
    std::ifstream file(path_ / kState, std::ios::binary);
    const std::string found{std::istreambuf_iterator<char>(file), {}};
    if (found == state) return {};
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      const fs::path name = entry.path().filename();
      if (!found.empty() || name == kState + std::string(".partial")) continue;
      return BadInput(path_.string() + " is there, and no conversion began it; remove it or name " +
                      "another output");
    }
    // The state is replaced last: it says that a conversion began this.
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      if (entry.path().filename() != kState) fs::remove_all(entry.path(), error);
    }
    return WriteText(path_ / kState, state);
  }

  void Remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  // Makes its entries durable and gives the folder its name. The lock is held until it has it.
  Status Commit() {
    std::error_code error;
    fsync(lock_);
    fs::rename(path_, final_, error);
    if (error) return BadInput(final_.string() + ": cannot rename: " + error.message());
    fs::remove(final_ / kState, error);
    return {};
  }

 private:
  PartialFolder(fs::path path, fs::path final_path, int lock)
      : path_(std::move(path)), final_(std::move(final_path)), lock_(lock) {}

  fs::path path_, final_;
  int lock_ = -1;  // the folder, opened and locked
};

bool IsComplete(const fs::path& path, const ShardFile& shard) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return !error && size == static_cast<uintmax_t>(SafetensorsBytes(shard.infos));
}

Status CheckSpace(const PartialFolder& folder, const std::vector<ShardFile>& shards) {
  int64_t needed = 0;
  std::error_code error;
  for (const ShardFile& shard : shards) {
    if (IsComplete(folder.path() / shard.name, shard)) continue;
    needed += SafetensorsBytes(shard.infos);
    fs::remove(folder.path() / (shard.name + ".partial"), error);  // takes space, is no use
  }
  const fs::space_info space = fs::space(folder.path(), error);
  if (error || space.available >= static_cast<uintmax_t>(needed)) return {};
  return BadInput(folder.path().string() + " needs " + std::to_string(needed) + " more bytes, " +
                  std::to_string(space.available) + " are free on that disk");
}

Status WriteShard(const fs::path& path, const ShardFile& shard, RowConverter& converter) {
  return WriteSafetensors(path.string(), shard.infos, [&](size_t index, const ByteSink& sink) {
    return converter.Convert(*shard.tensors[index], sink);
  });
}

Status WriteTokenizer(const Conversion& plan, const fs::path& folder) {
  TRINE_ASSIGN(const HfTokenizerFiles files, ToHuggingFace(plan.metadata));
  for (const auto& [name, text] : {std::pair("tokenizer.json", &files.tokenizer),
                                   {"tokenizer_config.json", &files.tokenizer_config},
                                   {"generation_config.json", &files.generation_config},
                                   {"chat_template.jinja", &files.chat_template}}) {
    if (!text->empty()) TRINE_RETURN_IF_ERROR(WriteText(folder / name, *text));
  }
  return {};
}

// What the folder holds when it is complete.
Status Fill(const PartialFolder& folder, const Conversion& plan,
            const std::vector<ShardFile>& shards, RowConverter& converter,
            const std::function<void(int64_t)>& skipped) {
  TRINE_ASSIGN(const std::string config, WriteHfConfig(plan.config, plan.rope_factors));
  TRINE_RETURN_IF_ERROR(WriteTokenizer(plan, folder.path()));
  TRINE_RETURN_IF_ERROR(WriteText(folder.path() / "config.json", config));
  TRINE_RETURN_IF_ERROR(CheckSpace(folder, shards));
  for (const ShardFile& shard : shards) {
    const fs::path path = folder.path() / shard.name;
    if (!IsComplete(path, shard)) {
      TRINE_RETURN_IF_ERROR(WriteShard(path, shard, converter));
      continue;
    }
    for (const ConvertedTensor* tensor : shard.tensors) skipped(tensor->in->bytes);
  }
  if (shards.size() == 1) return {};
  return WriteText(folder.path() / "model.safetensors.index.json", IndexText(shards, plan.bytes()));
}

}  // namespace

Status WriteHfFolder(const ConvertOptions& options, const WeightStore& store,
                     const Conversion& plan, RowConverter& converter,
                     const std::function<void(int64_t)>& skipped) {
  const std::vector<ShardFile> shards = CutShards(plan, options.shard_bytes);
  std::string output = options.output;
  while (output.size() > 1 && output.ends_with('/')) output.pop_back();
  TRINE_ASSIGN(PartialFolder folder, PartialFolder::Open(output));
  TRINE_RETURN_IF_ERROR(folder.Begin(StateText(options, store, shards)));
  const Status filled = Fill(folder, plan, shards, converter, skipped);
  if (filled.ok()) return folder.Commit();
  const bool worth_keeping = std::any_of(shards.begin(), shards.end(), [&](const ShardFile& shard) {
    return IsComplete(folder.path() / shard.name, shard);
  });
  if (!worth_keeping) folder.Remove();
  return filled;
}

}  // namespace trine
