#!/usr/bin/env bash
# Build the peers natively (about 10 minutes on 2 cores) into a folder outside the repository.
#   benchmarks/build_peers.sh [--servers] [FOLDER]     default: ~/.cache/slipstream/peers
# Result: FOLDER/llama/bin/python and FOLDER/ik_llama/bin/python, for compare_rows.py --peers FOLDER.
# --servers builds FOLDER/{llama,ik_llama}/bin/llama-server of the same sources, for speculation.py,
# and no Python packages. It takes long (ik_llama.cpp: most of an hour on 2 cores; a build that was
# stopped goes on where it was); where ccache is installed it is used.
set -euo pipefail
servers=
if [ "${1:-}" = --servers ]; then
  servers=1
  shift
fi
folder=${1:-"${SLIPSTREAM_CACHE:-$HOME/.cache/slipstream}/peers"}
python=${PYTHON:-python3}
mkdir -p "$folder/wheels" "$folder/sources"

environment() { # name
  [ -x "$folder/$1/bin/python" ] || "$python" -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet numpy
}

have() { ls "$folder/wheels/$1"-*.whl >/dev/null 2>&1; }

source_of() { # environment, package, version; sets $source to the unpacked source archive
  source=$folder/sources/$2-$3
  [ -d "$source" ] && return
  local archive
  archive=$(mktemp -d)
  "$folder/$1/bin/pip" download --quiet --no-deps --no-binary "$2" --dest "$archive" "$2==$3"
  mkdir "$source.partial"
  tar -xzf "$archive"/*.tar.gz -C "$source.partial" --strip-components 1
  mv "$source.partial" "$source"
  rm -r "$archive"
}

# The source archive of ik-llama-cpp-python 0.1.5 lacks the script that writes build-info.cpp. Its
# server takes every n-gram size for 1024 (least and most are exchanged in two lines), so that its
# n-gram methods never draft: mended here, for a peer is measured at its best.
ik_source() {
  source_of ik_llama ik-llama-cpp-python 0.1.5
  sed -i -E '/ngram_size_[nm] = std::max\(std::min\(1,/ s/std::max\(std::min\(1, (.*)\), 1024\)/std::min(std::max(1, \1), 1024)/' \
    "$source/vendor/ik_llama.cpp/examples/server/server-context.cpp"
  mkdir -p "$source/vendor/ik_llama.cpp/common/cmake"
  cat >"$source/vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake" <<'SCRIPT'
set(BUILD_NUMBER 0)
set(BUILD_COMMIT "unknown")
set(BUILD_COMPILER "unknown")
set(BUILD_TARGET "unknown")
configure_file(common/build-info.cpp.in common/build-info.cpp)
SCRIPT
}

server() { # environment, folder of the library's sources; further arguments are cmake's
  local name=$1 library=$2 launcher=()
  shift 2
  "$folder/$name/bin/pip" install --quiet cmake ninja
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  PATH="$folder/$name/bin:$PATH" cmake -S "$library" -B "$source/build-server" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=ON "${launcher[@]}" "$@"
  PATH="$folder/$name/bin:$PATH" cmake --build "$source/build-server" --target llama-server
  cp "$source/build-server/bin/llama-server" "$folder/$name/bin/llama-server"
}

environment llama
environment ik_llama

if [ -n "$servers" ]; then
  source_of llama llama-cpp-python 0.3.36
  server llama "$source/vendor/llama.cpp" -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
  ik_source
  server ik_llama "$source/vendor/ik_llama.cpp" -DLLAMA_BUILD_EXAMPLES=ON
  exit
fi

have llama_cpp_python-0.3.36 || CMAKE_ARGS="-DGGML_NATIVE=ON" "$folder/llama/bin/pip" wheel --no-deps \
  --no-binary llama-cpp-python --wheel-dir "$folder/wheels" llama-cpp-python==0.3.36
"$folder/llama/bin/pip" install --quiet --find-links "$folder/wheels" llama-cpp-python==0.3.36

if ! have ik_llama_cpp_python-0.1.5; then
  ik_source
  CMAKE_ARGS="-DGGML_NATIVE=ON" "$folder/ik_llama/bin/pip" wheel --no-deps \
    --wheel-dir "$folder/wheels" "$source"
fi
"$folder/ik_llama/bin/pip" install --quiet --find-links "$folder/wheels" ik-llama-cpp-python==0.1.5
