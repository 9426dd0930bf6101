package policy

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/odyssey-rl/odyssey/internal/model"
)

// TestMain serves as the other process of the lock test.
func TestMain(m *testing.M) {
	if path := os.Getenv("POLICY_TEST_LOCK"); path != "" {
		p, err := Open(path)
		if err == nil {
			_, err = p.LockTrainer()
		}
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString("locked")
		select {} // until killed
	}
	os.Exit(m.Run())
}

// smallSnapshot is a snapshot of a model of a few hundred parameters.
func smallSnapshot(seed uint64) *Snapshot {
	config := model.Config{
		HiddenSize: 4, IntermediateSize: 6, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1, HeadDim: 2,
		VocabSize: 8, MaxPositionEmbeddings: 16, RMSNormEps: 1e-6, RopeTheta: 10000, TieWordEmbeddings: true,
	}
	return &Snapshot{
		Config: config, Weights: model.RandomWeights(config, seed), Template: "pico",
		Tokenizer: []byte(`{"model": {"vocab": {"a": 0, "b": 4}}, "added_tokens": [{"id": 6, "content": "<|im_end|>"}]}`),
	}
}

// begun is a directory with version 0.
func begun(t *testing.T) *Policy {
	t.Helper()
	p, err := Create(filepath.Join(t.TempDir(), "policy"))
	if err != nil {
		t.Fatal(err)
	}
	commit(t, p, 0)
	return p
}

func commit(t *testing.T, p *Policy, version int) {
	t.Helper()
	files := smallSnapshot(uint64(version)).Files(Float32)
	files.Add(OptimizerFile, []byte("state"))
	if version > 0 {
		files.Add(MetricsFile, []byte("row\n"))
	}
	if err := p.Commit(version, files); err != nil {
		t.Fatal(err)
	}
}

// listing is the names under the directory, slash-separated.
func listing(t *testing.T, p *Policy) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(p.Path()), ".", func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names[1:]
}

func TestBuiltinPolicyIsWhole(t *testing.T) {
	p, err := Open(Builtin)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Load(0)
	if err != nil {
		t.Fatal(err)
	}
	want := model.PicoConfig()
	want.DefinedVocab = s.Config.DefinedVocab
	if s.Config != want || s.Template != "pico" || s.Config.Vocab() > 1024 || len(s.Digest) != 64 {
		t.Errorf("%+v, template %q, digest %q", s.Config, s.Template, s.Digest)
	}
	if latest, err := p.Latest(); latest != 0 || err != nil {
		t.Errorf("Latest() = %d, %v", latest, err)
	}
	if err := p.Wait(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if err := p.Wait(t.Context(), 1); err == nil {
		t.Error("waiting for version 1 of the builtin policy should fail, not hang")
	}
	if _, err := p.Load(1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("version 1: error %v", err)
	}
	if err := p.Commit(1, nil); err == nil {
		t.Error("the builtin policy took a commit")
	}
	if _, err := Create(Builtin); err == nil {
		t.Error("the builtin policy was created")
	}
}

func TestCommittedVersionReadsBack(t *testing.T) {
	p := begun(t)
	commit(t, p, 1)
	opened, err := Open(p.Path())
	if err != nil {
		t.Fatal(err)
	}
	if latest, err := opened.Latest(); latest != 1 || err != nil {
		t.Errorf("Latest() = %d, %v", latest, err)
	}
	for version := range 2 {
		got, err := opened.Load(version)
		if err != nil {
			t.Fatal(err)
		}
		want := smallSnapshot(uint64(version))
		want.Version, want.Digest, want.Config.DefinedVocab = version, got.Digest, 7
		if !reflect.DeepEqual(got, want) {
			t.Errorf("version %d reads as %+v", version, got)
		}
	}
	if data, err := opened.ReadFile(1, MetricsFile); string(data) != "row\n" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := opened.ReadFile(0, MetricsFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: error %v", err)
	}
	if _, err := opened.Load(2); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "version 2 is not committed, the latest is 1") {
		t.Errorf("a later version: error %v", err)
	}
	if target, err := os.Readlink(filepath.Join(p.Path(), "latest")); target != "v000001" || err != nil {
		t.Errorf("latest -> %q, %v", target, err)
	}
}

func TestPublishedBFloat16IsTheRoundedWeights(t *testing.T) {
	p, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := smallSnapshot(3)
	if err := p.Commit(0, s.Files(BFloat16)); err != nil {
		t.Fatal(err)
	}
	got, err := p.Load(0)
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range got.Weights {
		for j, x := range tensor.Data {
			if toBFloat16(x) != toBFloat16(s.Weights[i].Data[j]) || toBFloat16(x) == 0 && x != 0 {
				t.Fatalf("%s[%d] = %v, from %v", tensor.Name, j, x, s.Weights[i].Data[j])
			}
		}
	}
}

func TestDirectoryWithoutVersionIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no committed version") {
		t.Errorf("error %v", err)
	}
	if err := os.Symlink("../elsewhere", filepath.Join(dir, "latest")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), `points to "../elsewhere"`) {
		t.Errorf("error %v", err)
	}
	if _, err := Create(begun(t).Path()); err == nil || !strings.Contains(err.Error(), "has version 0 already") {
		t.Errorf("error %v", err)
	}
}

// TestFailedCommitLeavesTheLatestVersion covers a commit that ends early, in each
// of the states it can leave, and what the next trainer makes of it.
func TestFailedCommitLeavesTheLatestVersion(t *testing.T) {
	p := begun(t)
	commit(t, p, 1)
	whole := listing(t, p)

	broken := Files{"x": func(io.Writer) error { return errors.New("disk full") }}
	if err := p.Commit(2, broken); err == nil || !strings.Contains(err.Error(), "commit of version 2: x: disk full") {
		t.Errorf("error %v", err)
	}
	// Killed after the rename and before the switch.
	if err := os.Mkdir(filepath.Join(p.Path(), "v000002"), 0o777); err != nil {
		t.Fatal(err)
	}
	if latest, _ := p.Latest(); latest != 1 {
		t.Errorf("Latest() = %d", latest)
	}
	if _, err := p.Load(2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the uncommitted version: error %v", err)
	}
	release, err := p.LockTrainer()
	if err != nil {
		t.Fatal(err)
	}
	release()
	got := slices.DeleteFunc(listing(t, p), func(name string) bool { return strings.HasSuffix(name, ".lock") })
	if !slices.Equal(got, whole) {
		t.Errorf("after the next start: %v, want %v", got, whole)
	}
	commit(t, p, 2)
}

func TestCommitTakesAnyLaterVersionAndNoOther(t *testing.T) {
	p := begun(t)
	commit(t, p, 40)
	for _, version := range []int{40, 39, -1, 1 << 40} {
		if err := p.Commit(version, nil); err == nil {
			t.Errorf("version %d was committed", version)
		}
	}
	if _, err := p.Load(7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a version that was left out: error %v", err)
	}
}

func TestPruneKeepsMetricsAndWhatMayBeNeeded(t *testing.T) {
	p := begun(t)
	for version := 1; version <= 4; version++ {
		commit(t, p, version)
	}
	if err := p.Prune(3); err != nil {
		t.Fatal(err)
	}
	rest := []string{"config.json", "generation_config.json", "metrics.jsonl", "model.safetensors"}
	want := []string{"latest", "v000001", "v000001/metrics.jsonl", "v000002", "v000002/metrics.jsonl"}
	for _, folder := range []string{"v000003", "v000004"} {
		want = append(want, folder)
		for _, name := range rest {
			want = append(want, folder+"/"+name)
		}
		if folder == "v000004" {
			want = append(want, folder+"/optimizer.safetensors")
		}
		want = append(want, folder+"/tokenizer.json", folder+"/tokenizer_config.json")
	}
	if got := listing(t, p); !slices.Equal(got, want) {
		t.Errorf("left\n%v, want\n%v", got, want)
	}
	if err := p.Prune(100); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Load(4); err != nil {
		t.Errorf("the latest version: %v", err)
	}
}

func TestWaitReturnsWithTheVersion(t *testing.T) {
	p := begun(t)
	done := make(chan error, 1)
	go func() { done <- p.Wait(t.Context(), 1) }()
	select {
	case err := <-done:
		t.Fatalf("returned %v before the commit", err)
	case <-time.After(30 * time.Millisecond):
	}
	commit(t, p, 1)
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(ctx, 9); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := os.RemoveAll(p.Path()); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context(), 9); !errors.Is(err, fs.ErrNotExist) { // not forever
		t.Errorf("error %v of a directory that is gone", err)
	}
}

func TestEachSideHasOneProcess(t *testing.T) {
	p := begun(t)
	releaseRollout, err := p.LockRollout()
	if err != nil {
		t.Fatal(err)
	}
	defer releaseRollout()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), "POLICY_TEST_LOCK="+p.Path())
	output, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("locked"))
	if _, err := io.ReadFull(output, said); err != nil || string(said) != "locked" {
		t.Fatalf("the other process said %q, %v", said, err)
	}
	if _, err := p.LockTrainer(); err == nil || !strings.Contains(err.Error(), "another odyssey-train is running on it") {
		t.Errorf("error %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	other.Wait()
	release, err := p.LockTrainer()
	if err != nil {
		t.Fatalf("after the other was killed: %v", err)
	}
	release()
	release() // twice is harmless: the descriptor may belong to another by then
}

func TestOtherSettingsAreRefusedByName(t *testing.T) {
	p := begun(t)
	settings := []Setting{{"environments", "abc"}, {"--seed", "1"}, {"-G", "8"}}
	for range 2 {
		if err := p.Agree("rollout", settings); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Agree("train", settings[:1]); err != nil {
		t.Errorf("the other side has settings of its own: %v", err)
	}
	for _, c := range []struct {
		now  []Setting
		want Difference
	}{
		{[]Setting{{"environments", "abc"}, {"--seed", "2"}, {"-G", "8"}}, Difference{Name: "--seed", Begun: "1", Now: "2"}},
		{settings[:2], Difference{Name: "-G", Begun: "8"}},
		{append(slices.Clone(settings), Setting{"--temperature", "1"}), Difference{Name: "--temperature", Now: "1"}},
	} {
		var difference *Difference
		err := p.Agree("rollout", c.now)
		c.want.Path, c.want.Side = p.Path(), "rollout"
		if !errors.As(err, &difference) || *difference != c.want || !strings.Contains(err.Error(), c.want.Name) {
			t.Errorf("error %v, want %v", err, c.want)
		}
	}
}

func TestFolderOfShardsIsRead(t *testing.T) {
	dir, s := t.TempDir(), smallSnapshot(1)
	files := s.Files(Float32)
	delete(files, WeightsFile)
	half := len(s.Weights) / 2
	for name, tensors := range map[string]model.Weights{"model-00001-of-00002.safetensors": s.Weights[half:], "model-00002-of-00002.safetensors": s.Weights[:half]} {
		files[name] = func(w io.Writer) error { return WriteSafetensors(w, tensors, Float32, nil) }
	}
	index := `{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors", "model.embed_tokens.weight": "model-00002-of-00002.safetensors"}}`
	files.Add(WeightsFile+".index.json", []byte(index))
	for name, write := range files {
		if err := writeSynced(filepath.Join(dir, name), write); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadFolder(dir)
	if err != nil || !reflect.DeepEqual(got.Weights, s.Weights) {
		t.Errorf("%+v, error %v", got, err)
	}
	outside := strings.ReplaceAll(index, "model-00001-of", "../model")
	if err := os.WriteFile(filepath.Join(dir, WeightsFile+".index.json"), []byte(outside), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadFolder(dir); err == nil || !strings.Contains(err.Error(), "is no file name") {
		t.Errorf("error %v", err)
	}
}

func TestLoadRefusesWeightsThatAreNoNumbers(t *testing.T) {
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		p := begun(t)
		snapshot := smallSnapshot(1)
		snapshot.Weights[0].Data[1] = x
		if err := p.Commit(1, snapshot.Files(Float32)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Load(1); err == nil || !strings.Contains(err.Error(), "tensor "+snapshot.Weights[0].Name+": element 1 is ") {
			t.Errorf("%v: %v", x, err)
		}
	}
}
