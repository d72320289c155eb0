#!/usr/bin/env bash
# Build the peers natively (about 10 minutes on 2 cores) into a folder outside the repository.
#   benchmarks/build_peers.sh [FOLDER]     default: ~/.cache/slipstream/peers
# Result: FOLDER/llama/bin/python and FOLDER/ik_llama/bin/python, for compare_rows.py --peers FOLDER.
set -euo pipefail
folder=${1:-"${SLIPSTREAM_CACHE:-$HOME/.cache/slipstream}/peers"}
python=${PYTHON:-python3}
mkdir -p "$folder/wheels"

environment() { # name
  "$python" -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet numpy
}

have() { ls "$folder/wheels/$1"-*.whl >/dev/null 2>&1; }

environment llama
have llama_cpp_python-0.3.36 || CMAKE_ARGS="-DGGML_NATIVE=ON" "$folder/llama/bin/pip" wheel --no-deps \
  --no-binary llama-cpp-python --wheel-dir "$folder/wheels" llama-cpp-python==0.3.36
"$folder/llama/bin/pip" install --quiet --find-links "$folder/wheels" llama-cpp-python==0.3.36

# The source archive of ik-llama-cpp-python 0.1.5 lacks the script that writes build-info.cpp.
environment ik_llama
if ! have ik_llama_cpp_python-0.1.5; then
  source=$(mktemp -d)
  "$folder/ik_llama/bin/pip" download --quiet --no-deps --no-binary ik-llama-cpp-python \
    --dest "$source" ik-llama-cpp-python==0.1.5
  tar -xzf "$source"/*.tar.gz -C "$source"
  common=$(echo "$source"/ik_llama_cpp_python-*/vendor/ik_llama.cpp/common)
  mkdir -p "$common/cmake"
  echo 'configure_file(common/build-info.cpp.in common/build-info.cpp)' \
    >"$common/cmake/build-info-gen-cpp.cmake"
  CMAKE_ARGS="-DGGML_NATIVE=ON" "$folder/ik_llama/bin/pip" wheel --no-deps \
    --wheel-dir "$folder/wheels" "$(dirname "$(dirname "$(dirname "$common")")")"
  rm -r "$source"
fi
"$folder/ik_llama/bin/pip" install --quiet --find-links "$folder/wheels" ik-llama-cpp-python==0.1.5
