package verify_test

// A stream edited by hand is rejected at the gate that the edit concerns.

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcheck"
	"github.com/odyssey-rl/odyssey/internal/verify"
)

func clone(t *testing.T, e *episode.Environment) *episode.Environment {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	out := new(episode.Environment)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func tool(e *episode.Environment, name string) *episode.Tool {
	i := slices.IndexFunc(e.Tools, func(t episode.Tool) bool { return t.Name == name })
	return &e.Tools[i]
}

// crashOn makes a tool raise where a condition on its arguments holds.
func crashOn(t *testing.T, x *episode.Tool, condition string) {
	t.Helper()
	replace(t, &x.Source, "    return [", "    if "+condition+":\n        fail(\"crash\")\n    return [")
}

// task is the first task of an operation.
func task(t *testing.T, e *episode.Environment, operation string) *episode.Task {
	t.Helper()
	i := slices.IndexFunc(e.Tasks, func(t episode.Task) bool { return t.Operation == operation })
	if i < 0 {
		t.Fatalf("no task of operation %s", operation)
	}
	return &e.Tasks[i]
}

// replace replaces old, which must be there, by new.
func replace(t *testing.T, text *string, old, new string) {
	t.Helper()
	if !strings.Contains(*text, old) {
		t.Fatalf("no %q in %s", old, *text)
	}
	*text = strings.Replace(*text, old, new, 1)
}

func TestEditedStreamsAreRejectedAtTheRightGate(t *testing.T) {
	pool := newPool(t)
	original := lakes(t)
	synthesise(t, pool, original, options)
	if _, err := verify.Check(context.Background(), pool, original); err != nil {
		t.Fatal(err)
	}
	for _, task := range original.Tasks {
		if task.Status != episode.StatusVerified {
			t.Fatalf("before any edit %s is %s", task.Query, task.Status)
		}
	}
	for _, edit := range []struct {
		what      string
		operation string // of the task that is edited; "" where the edit concerns all
		gate      string
		make      func(t *testing.T, e *episode.Environment, x *episode.Task)
	}{
		{"a parameter schema that is no schema", "", toolcheck.GateSchema, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "get_lake").Parameters, `"type": "object"`, `"type": "record"`)
		}},
		{"a parameter schema that is open", "", toolcheck.GateSchema, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "get_lake").Parameters, `, "additionalProperties": false`, ``)
		}},
		{"a submit tool that is not there", "", toolcheck.GateSchema, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			e.SubmitTool = "finish"
		}},
		{"a tool that does not parse", "", toolcheck.GateLoad, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "get_lake").Source, "return row", "return row row")
		}},
		{"a tool that the source does not define", "", toolcheck.GateLoad, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "get_lake").Source, "def get_lake", "def fetch_lake")
		}},
		{"a tool that crashes always", "", toolcheck.GateExamples, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "get_lake").Source, "return row", `return row["no such column"]`)
		}},
		{"a recorded result that is another", "", toolcheck.GateExamples, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "count_lake").Examples[1].Result, "4", "5")
		}},
		{"a tool that crashes on some arguments", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "list_lake").Source, "    return [", "    if limit == 4:\n        return rows[0][\"no such column\"]\n    return [")
		}},
		{"a tool that crashes on an empty text", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			crashOn(t, tool(e, "search_lake"), `text == ""`)
		}},
		{"a tool that crashes on a quote", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			crashOn(t, tool(e, "search_lake"), `"\"" in text`)
		}},
		{"a tool that crashes on one letter", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			crashOn(t, tool(e, "search_lake"), `text == "a"`)
		}},
		{"a tool that crashes on digits", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			crashOn(t, tool(e, "search_lake"), `text == "007"`)
		}},
		{"a tool that crashes on one number of a small range", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			crashOn(t, tool(e, "list_lake"), `limit == 2`)
		}},
		{"a tool that refuses with a code it does not declare", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			tool(e, "get_lake").Raises = nil
		}},
		{"a tool whose results are not as declared", "", toolcheck.GateTotal, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			tool(e, "count_lake").Returns = `{"type": "string"}`
		}},
		{"tools that do not reach a column", "", toolcheck.GateCover, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			x := tool(e, "get_lake")
			replace(t, &x.Source, "return row", `return {k: v for k, v in row.items() if k != "depth"}`)
			for j := range x.Examples {
				x.Examples[j].Result = regexp.MustCompile(`"depth": [0-9]+, `).ReplaceAllString(x.Examples[j].Result, "")
			}
			replace(t, &tool(e, "list_lake").Parameters, `"depth", `, "")
		}},
		{"a tool with a key of the data in its code", "", toolcheck.GateLiteral, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "get_lake").Source, "    if not row:", "    if value == \"Huron\":\n        return lookup(\"lake.json\", \"name\", \"Erie\")\n    if not row:")
		}},
		{"a tool with a category of the data in its code", "", toolcheck.GateLiteral, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "count_lake").Source, "    return len(rows)", "    return len(rows) + (1 if where.get(\"continent\") == \"Asia\" else 0)")
		}},
		{"a tool with a number of the data in its code", "", toolcheck.GateLiteral, func(t *testing.T, e *episode.Environment, _ *episode.Task) {
			replace(t, &tool(e, "list_lake").Source, "    return [", "    rows = [row for row in rows if row[\"depth\"] != 26]\n    return [")
		}},

		{"a query that is empty", "lookup", verify.GateQuery, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Query = " "
		}},
		{"a query that names a tool", "lookup", verify.GateQuery, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Query = "Call get_lake. " + x.Query
		}},
		{"a wrong answer beside the solution", "lookup", verify.GateSolutionRuns, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Solution.Answer = `{"answer": "something else"}`
		}},
		{"a solution that crashes", "lookup", verify.GateSolutionRuns, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			replace(t, &x.Solution.Source, "def solve():", "def solve():\n    fail(\"no\")")
		}},
		{"a recorded call that is not made", "count", verify.GateSolutionRuns, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Solution.Calls = append(x.Solution.Calls, x.Solution.Calls[0])
		}},
		{"a call that does not fit the parameters", "count", verify.GateSolutionRuns, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			replace(t, &x.Solution.Source, "def solve():", "def solve():\n    call(\"search_lake\", {\"text\": \"x\"})\n    call(\"count_lake\", {\"name\": \"x\"})")
			x.Solution.Calls = append([]episode.SolutionCall{{Name: "search_lake", Arguments: `{"text": "x"}`}, {Name: "count_lake", Arguments: `{"name": "x"}`}}, x.Solution.Calls...)
		}},
		{"an answer that does not fit the schema", "count", verify.GateAnswerSchema, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			replace(t, &x.Solution.Source, "json.encode(found)", "found")
			x.Solution.Answer = strings.NewReplacer(`: "`, `: `, `"}`, `}`).Replace(x.Solution.Answer)
		}},
		{"another schema than the submit tool's", "count", verify.GateAnswerSchema, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.SubmitSchema = `{"type": "object"}`
		}},
		{"a wrong answer in the solution", "argmax", verify.GateVerifierAccepts, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			replace(t, &x.Solution.Source, "    return {\"answer\": ", "    return {\"answer\": \"not \" + ")
			replace(t, &x.Solution.Answer, `": "`, `": "not `)
		}},
		{"a verifier that accepts nothing", "lookup", verify.GateVerifierAccepts, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Verifier.Source = "def verify(answer):\n    return False\n"
		}},
		{"a verifier that calls tools", "lookup", verify.GateVerifierAccepts, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Verifier.Source = "def verify(answer):\n    return call(\"count_lake\", {}) == 16\n"
		}},
		{"a verifier that accepts always", "lookup", verify.GateVerifierRejects, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Verifier.Source = "def verify(answer):\n    return len(table(\"lake.json\")) > 0\n"
		}},
		{"a verifier that accepts whatever begins so", "argmax", verify.GateVerifierRejects, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			replace(t, &x.Verifier.Source, "return same_text(answer, expected)", "return answer.startswith(expected)")
		}},
		{"a verifier that accepts what is off by one", "count", verify.GateVerifierRejects, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			replace(t, &x.Verifier.Source, "return same_integer(answer, expected)", "return same_integer(answer, expected) or same_integer(answer, expected + 1)")
		}},
		{"a verifier that accepts every value of the column", "search-get", verify.GateVerifierRejects, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Verifier.Source = "def verify(answer):\n    return any([answer in [str(v) for v in row.values()] for row in table(\"lake.json\")])\n"
		}},
		{"a verifier that crashes on odd answers", "count", verify.GateVerifierRejects, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			replace(t, &x.Verifier.Source, "return same_integer(answer, expected)", "return int(answer) == expected")
		}},
		{"a verifier that holds the answer", "count", verify.GateVerifierReads, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Verifier.Source = "def verify(answer):\n    return answer == json.decode('" + x.Solution.Answer + "')[\"answer\"]\n"
		}},
		{"a solution that depends on the order of rows", "lookup", verify.GateDeterministic, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Query = "What is the first lake?"
			x.Solution.Source = "def solve():\n    return {\"answer\": call(\"list_lake\", {\"limit\": 1})[0]}\n"
			x.Solution.Calls = []episode.SolutionCall{{Name: "list_lake", Arguments: `{"limit": 1}`}}
			x.Solution.Answer = `{"answer": "Superior"}`
			x.Verifier.Source = "def verify(answer):\n    return len(table(\"lake.json\")) > 0 and answer == table(\"lake.json\")[0][\"name\"]\n"
		}},
		{"an answer that stands in the query", "lookup", verify.GateNeedsTools, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Query += " Is it " + submitted(t, x.Solution.Answer) + "?"
		}},
		{"an answer that is the most frequent value", "lookup", verify.GateNeedsTools, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Query = "What is the depth of the lake \"Great Salt Lake\"?"
			x.Solution.Source = "def solve():\n    return {\"answer\": json.encode(call(\"get_lake\", {\"name\": \"Great Salt Lake\"})[\"depth\"])}\n"
			x.Solution.Calls = []episode.SolutionCall{{Name: "get_lake", Arguments: `{"name": "Great Salt Lake"}`}}
			x.Solution.Answer = `{"answer": "10"}`
			x.Verifier.Source = "def verify(answer):\n    return answer == \"10\" and 10 in [row[\"depth\"] for row in table(\"lake.json\")]\n"
		}},
		{"one call at level 2", "lookup", verify.GateCalls, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Level = 2
		}},
		{"a call too many, of which one is enough", "lookup", verify.GateCalls, func(t *testing.T, e *episode.Environment, x *episode.Task) {
			x.Level = 2
			replace(t, &x.Solution.Source, "def solve():", "def solve():\n    call(\"list_lake\", {\"limit\": 1})")
			x.Solution.Calls = append([]episode.SolutionCall{{Name: "list_lake", Arguments: `{"limit": 1}`}}, x.Solution.Calls...)
		}},
	} {
		t.Run(edit.what, func(t *testing.T) {
			e := clone(t, original)
			var x *episode.Task
			if edit.operation != "" {
				x = task(t, e, edit.operation)
			}
			edit.make(t, e, x)
			if _, err := verify.Check(context.Background(), pool, e); err != nil {
				t.Fatal(err)
			}
			for i := range e.Tasks {
				got := &e.Tasks[i]
				if x != nil && got != x {
					if got.Status != episode.StatusVerified {
						t.Errorf("%s, which was not edited, is %s: %v", got.Query, got.Status, got.Verdicts[len(got.Verdicts)-1])
					}
					continue
				}
				last := got.Verdicts[len(got.Verdicts)-1]
				if got.Status != episode.StatusRejected || last.Outcome != episode.OutcomeFail || last.Gate != edit.gate {
					t.Fatalf("%s is %s, last verdict %+v; want a failure at %s", got.Query, got.Status, last, edit.gate)
				}
				if last.Detail == "" {
					t.Errorf("no counterexample")
				}
			}
			verify.DropRejected(e)
			if want := len(original.Tasks) - 1; x != nil && len(e.Tasks) != want || x == nil && len(e.Tasks) != 0 {
				t.Errorf("%d tasks are left", len(e.Tasks))
			}
		})
	}
}

func TestTheAnswerOfASiblingIsAWrongAnswer(t *testing.T) {
	pool := newPool(t)
	e := lakes(t)
	synthesise(t, pool, e, options)
	sibling, x := task(t, e, "compare"), task(t, e, "lookup")
	// This verifier accepts what another task has as its answer, and no other
	// wrong answer that could be thought of.
	x.Verifier.Source = "def verify(answer):\n    return len(table(\"lake.json\")) > 0 and answer in [json.decode(s)[\"answer\"] for s in ['" +
		x.Solution.Answer + "', '" + sibling.Solution.Answer + "']]\n"
	if _, err := verify.Check(context.Background(), pool, e); err != nil {
		t.Fatal(err)
	}
	last := x.Verdicts[len(x.Verdicts)-1]
	if last.Gate != verify.GateVerifierRejects || !strings.Contains(last.Detail, submitted(t, sibling.Solution.Answer)) {
		t.Errorf("last verdict %+v", last)
	}
}

func TestARepeatedAnswerIsRejected(t *testing.T) {
	pool := newPool(t)
	e := lakes(t)
	synthesise(t, pool, e, options)
	e.Tasks = append(e.Tasks, e.Tasks[0])
	if _, err := verify.Check(context.Background(), pool, e); err != nil {
		t.Fatal(err)
	}
	for i, x := range e.Tasks {
		if want := i < len(e.Tasks)-1; (x.Status == episode.StatusVerified) != want {
			t.Errorf("task %d is %s: %+v", i, x.Status, x.Verdicts[len(x.Verdicts)-1])
		}
	}
}

func TestCheckingTwiceChangesNothing(t *testing.T) {
	pool := newPool(t)
	e := lakes(t)
	synthesise(t, pool, e, options)
	var texts []string
	for range 2 {
		if _, err := verify.Check(context.Background(), pool, e); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] {
		t.Error("the second check left another environment")
	}
}

func TestVerdictsCarryTheRoundOfTheDesign(t *testing.T) {
	pool := newPool(t)
	e := lakes(t)
	synthesise(t, pool, e, options)
	e.Tasks[0].Verdicts[0].Round = 2
	if _, err := verify.Check(context.Background(), pool, e); err != nil {
		t.Fatal(err)
	}
	for _, v := range e.Tasks[0].Verdicts {
		if v.Round != 2 {
			t.Errorf("verdict %+v", v)
		}
	}
	if n := len(e.Tasks[0].Verdicts); n != 1+len(verify.Gates) {
		t.Errorf("%d verdicts", n)
	}
}

func TestVerifiersAcceptOtherSpellingsOfTheAnswer(t *testing.T) {
	pool := newPool(t)
	e := lakes(t)
	synthesise(t, pool, e, options)
	session, err := pool.Open(context.Background(), toolcheck.Program(e))
	if err != nil {
		t.Fatal(err)
	}
	texts, numbers := 0, 0
	for _, x := range e.Tasks {
		answer := submitted(t, x.Solution.Answer)
		spellings := []string{"  " + strings.ToUpper(answer) + " ", strings.ToLower(answer)}
		if digits := strings.Trim(answer, "0123456789"); digits == "" {
			numbers++
			spellings = append(spellings, "+"+answer, answer+".0", "0"+answer)
		} else {
			texts++
		}
		for _, s := range spellings {
			submission, err := json.Marshal(map[string]string{"answer": s})
			if err != nil {
				t.Fatal(err)
			}
			if res := session.Run(context.Background(), sandbox.DataOnly, x.Verifier.Source, "verify", string(submission)); res.Value != "true" {
				t.Errorf("%s: %q for %q gives %s %s", x.Query, s, answer, res.Value, res.Error)
			}
		}
	}
	if texts == 0 || numbers == 0 {
		t.Errorf("%d texts, %d numbers", texts, numbers)
	}
}
