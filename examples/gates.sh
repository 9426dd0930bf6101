#!/usr/bin/env bash
# Measure what the embedded policy must show: three seeds of 40 steps with the
# hca estimator and three with grpo, each judged on the same 512 held-out tasks.
# About a quarter of an hour on two cores. Exit status 1 if a gate is missed.
#
#   examples/gates.sh DIRECTORY [STEPS]
#
# The odyssey commands and Go must be on PATH. A cut run continues.
set -euo pipefail
out=${1:?usage: examples/gates.sh DIRECTORY [STEPS]} steps=${2:-40}
mkdir -p "$out"

if [ ! -e "$out/environments.arrows" ]; then
  odyssey-seed -q --builtin --environments-per-table 8 | odyssey-tools -q |
    odyssey-tasks -q --per 12 --levels 1,2,3 | odyssey-verify -q -o "$out/environments.arrows"
fi

evaluate() { # POLICY FILE TEMPERATURE
  [ -e "$2" ] || odyssey-rollout -q --policy "$1" --eval --split heldout --groups 512 -G 1 \
    --temperature "$3" --seed 1000 "$out/environments.arrows" |
    odyssey-hca -q | odyssey-train -q --eval --policy "$1" -o "$2"
}

for estimator in hca grpo; do
  for seed in 1 2 3; do
    run=$out/$estimator-$seed policy=$out/$estimator-$seed/policy
    mkdir -p "$run"
    [ -e "$policy/latest" ] || odyssey-train -q --init pico --policy "$policy"
    [ -e "$run/metrics.jsonl" ] || {
      evaluate "$policy" "$run/before.jsonl" 1
      evaluate "$policy" "$run/before-greedy.jsonl" 0
      odyssey-rollout -q --policy "$policy" --groups 8 -G 8 --steps "$steps" --seed "$seed" "$out/environments.arrows" |
        odyssey-hca -q --estimator "$estimator" | odyssey-train -q --policy "$policy" -o "$run/metrics.jsonl"
    }
    evaluate "$policy" "$run/after.jsonl" 1
    evaluate "$policy" "$run/after-greedy.jsonl" 0
  done
done
go run ./examples/gates "$out"
