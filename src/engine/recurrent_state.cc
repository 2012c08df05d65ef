#include "src/engine/recurrent_state.h"

namespace trine {

RecurrentState::RecurrentState(Backend& backend, const DeltaLayout& layout, int layers,
                               int64_t sequences, int64_t snapshots) {
  const int64_t slots = sequences + snapshots;
  const int64_t conv = slots * layout.conv_floats(), delta = slots * layout.delta_floats();
  const int64_t state = conv + delta, log = sequences * layout.log_floats();
  memory_ = backend.Allocate(layers * (state + log) * static_cast<int64_t>(sizeof(float)));
  for (int i = 0; i < layers; ++i) {  // the logs lie behind the states of all layers
    float* layer = memory_.as<float>() + i * state;
    layers_.push_back(
        {layer, layer + conv, layout, memory_.as<float>() + layers * state + i * log});
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
