// GatedDeltaNet: linear attention with a state matrix a head (Yang, Kautz, Hatamizadeh 2024), as in
// Qwen3.5. A rank has some key heads and the value heads that use them, with their state: nothing
// of it is exchanged. Value heads are in grouped order here, whatever the file's.
//
// Letters, beside those of layers.h: K key heads and V value heads of this rank, D their dimension,
// C = (2 K + V) D channels.
#pragma once

#include "src/models/layers.h"

namespace trine {

class GatedDeltaNet {
 public:
  // NAME = "blk.i."
  GatedDeltaNet(WeightLoader& loader, const std::string& prefix, const RankPlan& plan);

  // Buffers of a step, shared by all layers.
  struct Workspace {
    Workspace(Backend& backend, const RankPlan& plan, int64_t tokens);
    Scratch<float> qkv;          // [T, C]
    Scratch<float> z, out;       // [T, V * D]
    Scratch<float> decay, beta;  // [T, V]
    HeadOutputLinear::Workspace output;
  };

  // h [T, E], destroyed.
  Partial Forward(RankContext& context, F32View h, const TokenPlaces& places,
                  const DeltaStates& states, Workspace& workspace, I64View words) const;

  // Of no heads if the model has no such layer.
  static DeltaLayout Layout(const RankPlan& plan);

 private:
  DeltaLayout layout_;
  float norm_eps_;
  ColumnParallelLinear alpha_, beta_;
  InputRotation input_;
  ColumnParallelLinear qkv_, gate_;
  Buffer conv_;             // [C, taps]
  Buffer rate_, bias_;      // [V]
  Buffer q_norm_, k_norm_;  // [D] constants
  RmsNorm norm_;
  HeadOutputLinear output_;
};

}  // namespace trine
