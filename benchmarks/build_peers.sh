#!/usr/bin/env bash
# Build the peers natively (about 10 minutes on 2 cores) into a folder outside the repository.
#   benchmarks/build_peers.sh [FOLDER]     default: ~/.cache/slipstream/peers
# Result: FOLDER/llama/bin/python and FOLDER/ik_llama/bin/python, for compare_engines.py --peers FOLDER.
set -euo pipefail
folder=${1:-"${SLIPSTREAM_CACHE:-$HOME/.cache/slipstream}/peers"}
python=${PYTHON:-python3}
mkdir -p "$folder/wheels"

build() { # name package version
  "$python" -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet numpy
  if ! ls "$folder/wheels/${2//-/_}-$3"-*.whl >/dev/null 2>&1; then
    CMAKE_ARGS="-DGGML_NATIVE=ON" "$folder/$1/bin/pip" wheel --no-deps --no-binary "$2" \
      --wheel-dir "$folder/wheels" "$2==$3"
  fi
  "$folder/$1/bin/pip" install --quiet --find-links "$folder/wheels" "$2==$3"
}

build llama llama-cpp-python 0.3.36
build ik_llama ik-llama-cpp-python 0.1.5
