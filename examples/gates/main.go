// Gates reads the runs that examples/gates.sh made and holds them against what
// the embedded policy must show. It prints one row per gate and exits with
// status 1 if one is missed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// seeds are those of examples/gates.sh.
var seeds = []int{1, 2, 3}

// run is one training run with its evaluations on the same held-out tasks.
type run struct {
	train                                    []episode.Metric
	before, after, beforeGreedy, afterGreedy episode.Metric
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gates DIRECTORY")
		os.Exit(2)
	}
	missed, err := judge(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gates:", err)
		os.Exit(3)
	}
	if missed {
		os.Exit(1)
	}
}

func judge(folder string) (missed bool, err error) {
	hca, err := readRuns(folder, "hca")
	if err != nil {
		return false, err
	}
	grpo, err := readRuns(folder, "grpo")
	if err != nil {
		return false, err
	}
	gate := func(ok bool, name, format string, arguments ...any) {
		word := "pass"
		if !ok {
			word, missed = "MISS", true
		}
		fmt.Printf("%-4s  %-42s %s\n", word, name, fmt.Sprintf(format, arguments...))
	}
	start := mean(hca, func(r run) float64 { return r.before.AbnormalRate })
	gate(start >= 0.22 && start <= 0.45, "abnormal at start, 0.22 to 0.45", "%.3f", start)
	end, worst := mean(hca, func(r run) float64 { return r.after.AbnormalRate }), 0.0
	for _, r := range hca {
		worst = max(worst, r.after.AbnormalRate)
	}
	gate(end <= 0.13 && worst <= 0.20 && end <= start/2, "abnormal at end, mean <= 0.13, none > 0.20", "%.3f, worst %.3f", end, worst)
	reward := mean(hca, func(r run) float64 { return r.before.Reward })
	gate(reward >= 0.18 && reward <= 0.40, "held-out reward at start, 0.18 to 0.40", "%.3f", reward)
	gain := mean(hca, func(r run) float64 { return r.after.Reward - r.before.Reward })
	gate(gain >= 0.03, "its gain, mean >= 0.03", "%+.3f", gain)
	rise := mean(hca, func(r run) float64 {
		return meanReward(r.train[len(r.train)/2:]) - meanReward(r.train[:min(5, len(r.train))])
	})
	gate(rise >= 0.06, "train reward, second half less steps 1-5", "%+.3f", rise)
	greedyBefore := mean(hca, func(r run) float64 { return r.beforeGreedy.Reward })
	greedyAfter := mean(hca, func(r run) float64 { return r.afterGreedy.Reward })
	gate(greedyAfter >= greedyBefore-0.05, "greedy reward, not below its start - 0.05", "%.3f -> %.3f", greedyBefore, greedyAfter)
	plain := mean(grpo, func(r run) float64 { return r.after.AbnormalRate })
	gate(end <= plain+0.06, "abnormal of hca <= that of grpo + 0.06", "%.3f and %.3f", end, plain)
	difference := 0.0
	for _, r := range append(hca, grpo...) {
		for _, m := range r.train {
			if m.LogprobAbsDiffMax == nil {
				return false, fmt.Errorf("step %d: the log-probability difference was not measured", m.Step)
			}
			difference = max(difference, *m.LogprobAbsDiffMax)
		}
	}
	gate(difference == 0, "log-probability difference, every step 0", "%g", difference)
	fmt.Printf("\nheld-out reward after: hca %.3f, grpo %.3f (no claim is made of their difference)\n",
		mean(hca, func(r run) float64 { return r.after.Reward }), mean(grpo, func(r run) float64 { return r.after.Reward }))
	return missed, nil
}

func mean(runs []run, of func(run) float64) float64 {
	total := 0.0
	for _, r := range runs {
		total += of(r)
	}
	return total / float64(len(runs))
}

func meanReward(rows []episode.Metric) float64 {
	total := 0.0
	for _, m := range rows {
		total += m.Reward
	}
	return total / float64(len(rows))
}

func readRuns(folder, estimator string) ([]run, error) {
	var runs []run
	for _, seed := range seeds {
		place := filepath.Join(folder, fmt.Sprintf("%s-%d", estimator, seed))
		var r run
		var err error
		if r.train, err = readMetrics(filepath.Join(place, "metrics.jsonl")); err != nil {
			return nil, err
		}
		for name, row := range map[string]*episode.Metric{"before": &r.before, "after": &r.after, "before-greedy": &r.beforeGreedy, "after-greedy": &r.afterGreedy} {
			rows, err := readMetrics(filepath.Join(place, name+".jsonl"))
			if err != nil {
				return nil, err
			}
			*row = rows[0]
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// readMetrics reads a complete JSONL metric stream: a header, rows, an end
// record.
func readMetrics(name string) ([]episode.Metric, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) < 3 {
		return nil, fmt.Errorf("%s: no metric rows", name)
	}
	var rows []episode.Metric
	for i, line := range lines[1 : len(lines)-1] {
		var m episode.Metric
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return nil, fmt.Errorf("%s: record %d: %w", name, i+1, err)
		}
		rows = append(rows, m)
	}
	return rows, nil
}
