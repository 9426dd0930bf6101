package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

func TestMain(m *testing.M) {
	MaybeWorker()
	os.Exit(m.Run())
}

const countries = `[{"name": "Chad", "area": 1284000, "share": 0.5}, {"name": "Peru", "area": 1285216, "share": 1.25}, {"name": "Åland", "area": 1580, "share": 2.0}]`

const toolSource = `
def get_country(name):
    row = lookup("country.json", "name", name, fold=True)
    if row == None:
        refuse("not_found", "no country " + name)
    return row

def count_country(**filters):
    n = 0
    for row in table("country.json"):
        ok = True
        for k, v in filters.items():
            if row[k] != v:
                ok = False
        if ok:
            n += 1
    return n

def total_share():
    return sum([r["share"] for r in table("country.json")])

log = []
def remember(x):
    log.append(x)
    return log

def spoil(name):
    lookup("country.json", "name", name)["area"] = 1
    return True

def crash(x):
    y = [1, 2]
    return y[x]

def give_up():
    fail("gone")

def secret():
    return lambda: 1
`

func testProgram(extra ...string) Program {
	p := Program{Files: []episode.File{{Path: "country.json", MediaType: "application/json", Content: countries}}}
	for _, name := range append([]string{"get_country", "count_country", "total_share", "remember", "spoil", "crash", "give_up", "secret"}, extra...) {
		p.Tools = append(p.Tools, episode.Tool{Name: name, Source: toolSource})
	}
	return p
}

func open(t testing.TB, options Options) *Session {
	t.Helper()
	pool := NewPool(options)
	t.Cleanup(pool.Close)
	s, err := pool.Open(context.Background(), testProgram())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCallsAnswerAsJSONInRowOrder(t *testing.T) {
	s := open(t, Options{})
	for _, c := range []struct {
		tool, arguments string
		status          Status
		value, code     string
	}{
		{"get_country", `{"name": "chad"}`, OK, `{"name": "Chad", "area": 1284000, "share": 0.5}`, ""},
		{"get_country", `{"name": "åland"}`, OK, `{"name": "Åland", "area": 1580, "share": 2.0}`, ""},
		{"get_country", `{"name": "Atlantis"}`, Refused, `{"error": "not_found", "message": "no country Atlantis"}`, "not_found"},
		{"count_country", `{"name": "Peru"}`, OK, `1`, ""},
		{"total_share", `{}`, OK, `3.75`, ""},
		{"crash", `{"x": 1}`, OK, `2`, ""},
		{"crash", `{"x": 5}`, Raised, ``, CodeException},
		{"give_up", `{}`, Raised, ``, CodeFail},
		{"secret", `{}`, Raised, ``, CodeNotJSON},
		{"get_country", `{}`, Raised, ``, CodeException},
		{"get_country", `{"name": "a", "name": "b"}`, Raised, ``, CodeNotJSON},
		{"get_country", `[1]`, Raised, ``, CodeNotJSON},
		{"nothing", `{}`, Raised, ``, CodeUnknownTool},
	} {
		r := s.Call(context.Background(), c.tool, c.arguments)
		if r.Status != c.status || r.Value != c.value || r.Code != c.code {
			t.Errorf("%s(%s) = %+v, want %s %s %s", c.tool, c.arguments, r, c.status, c.value, c.code)
		}
	}
}

func TestRaisedNamesItsPlace(t *testing.T) {
	r := open(t, Options{}).Call(context.Background(), "crash", `{"x": 7}`)
	if r.Line != 33 || r.Column != 13 || r.Error == "" || r.Steps == 0 {
		t.Errorf("crash: %+v, want line 33 column 13", r)
	}
}

func TestNoStateLivesFromCallToCall(t *testing.T) {
	s := open(t, Options{})
	for _, c := range [][2]string{{"remember", `{"x": 1}`}, {"spoil", `{"name": "Peru"}`}} {
		if r := s.Call(context.Background(), c[0], c[1]); r.Status != Raised || !strings.Contains(r.Error, "frozen") {
			t.Errorf("%s: %+v, want a refusal to change frozen values", c[0], r)
		}
	}
	script := "seen = []\ndef main():\n    seen2 = [1]\n    return len(seen)\n"
	for range 3 {
		if r := s.Run(context.Background(), DataOnly, script, "main", "{}"); r.Value != "0" {
			t.Errorf("script globals: %+v, want 0", r)
		}
	}
	if r := s.Run(context.Background(), DataOnly, "g = []\ndef main():\n    g.append(1)\n", "main", "{}"); r.Status != Raised {
		t.Errorf("script changed its globals: %+v", r)
	}
}

func TestScriptsReachOnlyWhatTheirModeOffers(t *testing.T) {
	s := open(t, Options{})
	ctx := context.Background()
	solution := `
def solve():
    a = call("get_country", {"name": "Chad"})
    b = call("get_country", {"name": "Nowhere"})
    a["area"] = 0
    c = call("get_country", {"name": "Chad"})
    return {"answer": str(c["area"]), "error": b["error"]}
`
	r := s.Run(ctx, WithTools, solution, "solve", "{}")
	if r.Value != `{"answer": "1284000", "error": "not_found"}` || len(r.Calls) != 3 {
		t.Fatalf("solution: %+v", r)
	}
	if c := r.Calls[1]; c.Name != "get_country" || c.Arguments != `{"name": "Nowhere"}` || c.Status != Refused {
		t.Errorf("second call: %+v", c)
	}
	verifier := `
def verify(answer):
    return str([r["area"] for r in table("country.json") if r["name"] == "Chad"][0]) == answer
`
	if r := s.Run(ctx, DataOnly, verifier, "verify", `{"answer": "1284000"}`); r.Value != "true" {
		t.Errorf("verifier: %+v", r)
	}
	for _, c := range []struct {
		mode Mode
		name string
	}{{WithTools, "table"}, {WithTools, "lookup"}, {WithTools, "refuse"}, {DataOnly, "call"}, {DataOnly, "lookup"}, {DataOnly, "get_country"}, {WithTools, "get_country"}, {WithTools, "open"}, {WithTools, "time"}} {
		r := s.Run(ctx, c.mode, "def main():\n    return "+c.name+"\n", "main", "{}")
		if r.Status != Raised || r.Code != CodeSyntax || r.Line != 2 {
			t.Errorf("mode %d reaches %s: %+v", c.mode, c.name, r)
		}
	}
}

// Every way to be too much has one clear verdict, and the next call works.
func TestLimitsHaveOneVerdictEachAndTheNextCallWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts workers that fill memory")
	}
	s := open(t, Options{Time: 3 * time.Second})
	for _, c := range []struct {
		name, body string
		status     Status
		code       string
	}{
		{"endless loop", "while True: pass", Limit, CodeSteps},
		{"memory by steps", "l = []\n    while True: l.append('a' * 10000 + str(len(l)))", Limit, CodeMemory},
		{"memory at once", "x = 'a' * 900000000", Limit, CodeMemory},
		{"list at once", "x = [0] * 100000000", Limit, CodeMemory},
		{"big integers", "x = 3\n    for i in range(60): x = x * x", Limit, CodeTime},
		{"huge output", "return ['a' * 1000] * 100000", Limit, CodeOutput},
		{"long text", "return 'a' * 2000000", Limit, CodeOutput},
		{"deep recursion", "return main()", Raised, CodeException},
		{"deep value", "x = []\n    for i in range(100000): x = [x]\n    return x", Raised, CodeNotJSON},
		{"deep text", "return json.decode('[' * 100000)", Raised, CodeException},
		{"cycle", "x = [1]\n    x.append(x)\n    return x", Raised, CodeNotJSON},
		{"not UTF-8", `return "é"[0:1]`, Raised, CodeNotJSON},
		{"not a number", "return float('nan')", Raised, CodeNotJSON},
		{"huge integer", "return 7 << 500", OK, ""},
		{"load", "pass\nload('/etc/passwd', 'x')", Raised, CodeSyntax},
	} {
		t.Run(c.name, func(t *testing.T) {
			if raceDetector && c.code == CodeMemory && strings.Contains(c.name, "at once") {
				t.Skip("no memory bound under the race detector")
			}
			r := s.Run(context.Background(), DataOnly, "def main():\n    "+c.body+"\n", "main", "{}")
			if r.Status != c.status || r.Code != c.code {
				t.Errorf("%.200v, want %s %s", fmt.Sprintf("%+v", r), c.status, c.code)
			}
			if after := s.Call(context.Background(), "count_country", "{}"); after.Value != "3" {
				t.Errorf("next call: %+v", after)
			}
		})
	}
}

func TestStepsAreDeterministic(t *testing.T) {
	s := open(t, Options{})
	a := s.Call(context.Background(), "count_country", `{"name": "Chad"}`)
	b := s.Call(context.Background(), "count_country", `{"name": "Chad"}`)
	if a.Steps == 0 || a.Steps != b.Steps {
		t.Errorf("steps %d and %d", a.Steps, b.Steps)
	}
}

func TestLoadErrorsCarryTheirPlace(t *testing.T) {
	pool := NewPool(Options{})
	defer pool.Close()
	for _, c := range []struct {
		source, code string
		line, column int
	}{
		{"def f(:\n", CodeSyntax, 1, 8},
		{"def f():\n    return missing\n", CodeSyntax, 2, 12},
		{"def f(x):\n    return \"%.2f\" % x\n", CodeSyntax, 2, 12},
		{"def f(x):\n    return \"{:.2f}\".format(x)\n", CodeSyntax, 2, 12},
		{"x = [][1]\ndef f(): pass\n", CodeException, 1, 7},
		{"def g(): pass\n", CodeUnknownTool, 0, 0},
		{"for i in range(100000000): pass\n", CodeSteps, 0, 0},
	} {
		_, err := pool.Open(context.Background(), Program{Tools: []episode.Tool{{Name: "f", Source: c.source}}})
		var load *LoadError
		if !errors.As(err, &load) || load.Code != c.code || load.Line != c.line || load.Column != c.column {
			t.Errorf("%q: %#v, want %s at %d:%d", c.source, err, c.code, c.line, c.column)
		}
	}
	_, err := pool.Open(context.Background(), Program{Files: []episode.File{{Path: "a.json", Content: `{"a": 1}`}}})
	var load *LoadError
	if !errors.As(err, &load) || load.Code != CodeNotJSON {
		t.Errorf("object as table: %v", err)
	}
}

func TestAKilledWorkerIsReplaced(t *testing.T) {
	pool := NewPool(Options{Workers: 1})
	defer pool.Close()
	s, err := pool.Open(context.Background(), testProgram())
	if err != nil {
		t.Fatal(err)
	}
	pool.idle[0].cmd.Process.Kill()
	first := s.Call(context.Background(), "count_country", "{}")
	second := s.Call(context.Background(), "count_country", "{}")
	if first.Status != Infrastructure || first.Error != "worker died" || second.Value != "3" {
		t.Errorf("after a kill: %+v, then %+v", first, second)
	}
}

func TestManyGoroutinesShareAPoolOfManyPrograms(t *testing.T) {
	pool := NewPool(Options{Workers: 3, CacheBytes: 1 << 10})
	defer pool.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 30 {
				k := (g + i) % 5
				s, err := pool.Open(context.Background(), Program{
					Files: []episode.File{{Path: "t.json", Content: fmt.Sprintf(`[{"k": %d, "pad": %q}]`, k, strings.Repeat("x", 300))}},
					Tools: []episode.Tool{{Name: "f", Source: "def f(x): return [table('t.json')[0]['k'], x]"}},
				})
				if err != nil {
					t.Error(err)
					return
				}
				want := fmt.Sprintf("[%d, %d]", k, i)
				if r := s.Call(context.Background(), "f", fmt.Sprintf(`{"x": %d}`, i)); r.Value != want {
					t.Errorf("got %+v, want %s", r, want)
				}
			}
		}()
	}
	wg.Wait()
}

func TestCancelEndsACall(t *testing.T) {
	s := open(t, Options{Steps: 1 << 60, Time: time.Minute})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	r := s.Run(ctx, DataOnly, "def main():\n    while True: pass\n", "main", "{}")
	if r.Status != Infrastructure || time.Since(begun) > 5*time.Second {
		t.Errorf("cancelled call: %+v after %v", r, time.Since(begun))
	}
	if r := s.Call(context.Background(), "count_country", "{}"); r.Value != "3" {
		t.Errorf("next call: %+v", r)
	}
}

func TestAFreshSandboxIsItsOwnProcess(t *testing.T) {
	pool := NewPool(Options{})
	defer pool.Close()
	fresh, err := pool.OpenFresh(context.Background(), testProgram())
	if err != nil {
		t.Fatal(err)
	}
	if r := fresh.Call(context.Background(), "count_country", "{}"); r.Value != "3" {
		t.Errorf("fresh call: %+v", r)
	}
	fresh.Close()
	if r := fresh.Call(context.Background(), "count_country", "{}"); r.Status != Infrastructure {
		t.Errorf("closed session answered: %+v", r)
	}
	if len(pool.idle) != 0 {
		t.Error("a fresh worker joined the pool")
	}
}

func TestClosedPoolRefuses(t *testing.T) {
	pool := NewPool(Options{})
	pool.Close()
	if _, err := pool.Open(context.Background(), testProgram()); err == nil {
		t.Error("a closed pool opened a program")
	}
}

func BenchmarkIndexedGet(b *testing.B) {
	s := open(b, Options{})
	b.ResetTimer()
	for range b.N {
		if r := s.Call(context.Background(), "get_country", `{"name": "Peru"}`); r.Status != OK {
			b.Fatal(r)
		}
	}
}

func BenchmarkVerifier(b *testing.B) {
	s := open(b, Options{})
	source := "def verify(answer):\n    return str([r['area'] for r in table('country.json') if r['name'] == 'Chad'][0]) == answer\n"
	b.ResetTimer()
	for range b.N {
		if r := s.Run(context.Background(), DataOnly, source, "verify", `{"answer": "1284000"}`); r.Value != "true" {
			b.Fatal(r)
		}
	}
}

func BenchmarkOpenFresh(b *testing.B) {
	pool := NewPool(Options{})
	defer pool.Close()
	for range b.N {
		s, err := pool.OpenFresh(context.Background(), testProgram())
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
