#include "src/engine/recurrent_state.h"

namespace trine {

RecurrentState::RecurrentState(Backend& backend, const DeltaLayout& layout, int layers,
                               int64_t slots) {
  const int64_t conv = slots * layout.conv_floats(), delta = slots * layout.delta_floats();
  memory_ = backend.Allocate(layers * (conv + delta) * static_cast<int64_t>(sizeof(float)));
  for (int i = 0; i < layers; ++i) {
    float* layer = memory_.as<float>() + i * (conv + delta);
    layers_.push_back({layer, layer + conv, layout});
  }
}

void RecurrentState::Copy(Backend& backend, int64_t from, int64_t to) const {
  for (const DeltaStates& layer : layers_) {
    const auto copy = [&](float* slots, int64_t floats) {
      backend.Copy({slots + from * floats, 1, floats, floats},
                   {slots + to * floats, 1, floats, floats});
    };
    copy(layer.conv, layer.layout.conv_floats());
    copy(layer.delta, layer.layout.delta_floats());
  }
}

}  // namespace trine
