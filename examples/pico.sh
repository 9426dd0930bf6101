#!/usr/bin/env bash
# The recipe of the embedded policy: a warm-up on solution trajectories over
# disguised variants of the embedded training tables, with planted mistakes, so
# that the demo has something to remove. About an hour on two cores.
#
#   examples/pico.sh DIRECTORY
#
# The odyssey commands must be on PATH. A cut run continues. `make pico` embeds the
# result, rounded to bfloat16.
set -euo pipefail
out=${1:?usage: examples/pico.sh DIRECTORY} data_seed=8 seed=7 steps=6000
policy=$out/policy
mkdir -p "$out"

# Disguises teach the policy to read the prompt: nouns, columns and values of a
# variant are renamed and scrambled, half of them to made-up words.
if [ ! -e "$out/warm.jsonl.zst" ]; then
  odyssey-seed -q --builtin --variants 150 --seed "$data_seed" | odyssey-tools -q |
    odyssey-tasks -q --per 24 --levels 1,2,3 --seed "$data_seed" |
    odyssey-verify --summary "$out/synthesis.json" -o "$out/warm.jsonl.zst"
fi
if [ ! -e "$out/tokenizer.json" ]; then
  odyssey-train --make-tokenizer 1024 -o "$out/tokenizer.json" "$out/warm.jsonl.zst"
fi
if [ ! -e "$policy/latest" ]; then
  odyssey-train --init random:128,4,4,2,32,384 --tokenizer "$out/tokenizer.json" --seed "$seed" --policy "$policy"
fi
odyssey-rollout -q --policy "$policy" --engine solution --mistakes 0.3 --levels-first 0.25 \
  --groups 16 -G 1 --steps "$steps" --seed "$seed" "$out/warm.jsonl.zst" |
  odyssey-train --objective sft --policy "$policy" --optimizer muon --context-weight 0.2 --drill 0.3 \
    --commit-every 100 --timings -o "$out/metrics.jsonl"
