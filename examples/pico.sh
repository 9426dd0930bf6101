#!/usr/bin/env bash
# The recipe of the embedded policy: a warm-up on solution trajectories over
# disguised variants of the embedded training tables, with planted mistakes, so
# that the demo has something to remove. About an hour on two cores.
#
#   examples/pico.sh DIRECTORY
#
# The odyssey commands must be on PATH. A cut run continues. To embed the result,
# run `cp DIRECTORY/policy/latest/* internal/policy/pico/` afterwards.
set -euo pipefail
out=${1:?usage: examples/pico.sh DIRECTORY} seed=7 steps=${PICO_STEPS:-8000}
policy=$out/policy
mkdir -p "$out"

# Disguises teach the policy to read the prompt: nouns, columns and values of a
# variant are renamed and scrambled, half of them to random syllables.
if [ ! -e "$out/warm.jsonl.zst" ]; then
  odyssey-seed --builtin --variants 150 --seed "$seed" | odyssey-tools |
    odyssey-tasks --per 24 --levels 1,2,3 --seed "$seed" |
    odyssey-verify --summary "$out/synthesis.json" -o "$out/warm.jsonl.zst"
fi
if [ ! -e "$out/tokenizer.json" ]; then
  odyssey-train --make-tokenizer 1024 -o "$out/tokenizer.json" "$out/warm.jsonl.zst"
fi
if [ ! -e "$policy/latest" ]; then
  odyssey-train --init random:128,4,4,2,32,384 --tokenizer "$out/tokenizer.json" --seed "$seed" --policy "$policy"
fi
odyssey-rollout -q --policy "$policy" --engine solution --mistakes 0.3 --levels-first 0.3 \
  --groups 16 -G 1 --steps "$steps" --seed "$seed" "$out/warm.jsonl.zst" |
  odyssey-train --objective sft --policy "$policy" --optimizer muon --context-weight 0.2 --drill 0.3 \
    --commit-every 100 --timings -o "$out/metrics.jsonl"
