package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcheck"
	"github.com/odyssey-rl/odyssey/internal/tools"
)

func TestMain(m *testing.M) {
	sandbox.MaybeWorker()
	os.Exit(m.Run())
}

func rivers() *episode.Environment {
	return &episode.Environment{
		EnvironmentID: "rivers",
		Schema: `{"tables": [{"path": "river.json", "noun": "river", "key": "name", "rows": 6, "columns": [
			{"name": "name", "type": "key"}, {"name": "mouth", "type": "category"}, {"name": "length", "type": "integer", "unit": "km"}, {"name": "class", "type": "text", "nulls": 1}]}]}`,
		Files: []episode.File{{Path: "river.json", MediaType: "application/json", Content: `[
			{"name": "Danube", "mouth": "Black Sea", "length": 2850, "class": "a"}, {"name": "Dnieper", "mouth": "Black Sea", "length": 2201, "class": "b"},
			{"name": "Volga", "mouth": "Caspian Sea", "length": 3531, "class": null}, {"name": "Ural", "mouth": "Caspian Sea", "length": 2428, "class": "c"},
			{"name": "Rhine", "mouth": "North Sea", "length": 1233, "class": "d"}, {"name": "Elbe", "mouth": "North Sea", "length": 1112, "class": "e"}]`}},
	}
}

func TestToolsBehaveAsDescribed(t *testing.T) {
	pool := sandbox.NewPool(sandbox.Options{Workers: 1})
	defer pool.Close()
	e := rivers()
	if err := tools.Make(context.Background(), pool, e); err != nil {
		t.Fatal(err)
	}
	session, err := pool.Open(context.Background(), toolcheck.Program(e))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, arguments, want string }{
		{"list_river", `{}`, `["Danube", "Dnieper", "Volga", "Ural", "Rhine"]`},
		{"list_river", `{"mouth": "North Sea"}`, `["Rhine", "Elbe"]`},
		{"list_river", `{"mouth": "north sea"}`, `[]`},
		{"list_river", `{"sort_by": "length", "order": "desc", "limit": 2}`, `["Volga", "Danube"]`},
		{"list_river", `{"sort_by": "length"}`, `["Elbe", "Rhine", "Dnieper", "Ural", "Danube"]`},
		{"list_river", `{"mouth": "Black Sea", "class": "b"}`, `["Dnieper"]`},
		{"get_river", `{"name": "Volga"}`, `{"name": "Volga", "mouth": "Caspian Sea", "length": 3531, "class": null}`},
		{"get_river", `{"name": "VOLGA"}`, `{"name": "Volga", "mouth": "Caspian Sea", "length": 3531, "class": null}`},
		{"get_river", `{"name": "Styx"}`, `{"error": "not_found", "message": "no river with this name"}`},
		{"count_river", `{}`, `6`},
		{"count_river", `{"mouth": "Black Sea"}`, `2`},
		{"search_river", `{"text": "e"}`, `["Danube", "Dnieper", "Rhine", "Elbe"]`},
		{"search_river", `{"text": "DN"}`, `["Dnieper"]`},
		{"search_river", `{"text": "styx"}`, `[]`},
	} {
		if got := session.Call(context.Background(), c.tool, c.arguments); got.Value != c.want {
			t.Errorf("%s(%s) gives %s %s, want %s", c.tool, c.arguments, got.Value, got.Error, c.want)
		}
	}
}

func TestToolsAreRemadeAndTasksDropped(t *testing.T) {
	pool := sandbox.NewPool(sandbox.Options{Workers: 1})
	defer pool.Close()
	e := rivers()
	var texts []string
	for range 2 {
		if err := tools.Make(context.Background(), pool, e); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(e.Tools)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
		e.Tasks = []episode.Task{{Query: "of the old tools"}}
	}
	if texts[0] != texts[1] {
		t.Error("tools differ when they are made again")
	}
	if err := tools.Make(context.Background(), pool, e); err != nil || len(e.Tasks) != 0 {
		t.Errorf("%d tasks are left, %v", len(e.Tasks), err)
	}
}

func TestAFaultOfAToolIsAnError(t *testing.T) {
	pool := sandbox.NewPool(sandbox.Options{Workers: 1})
	defer pool.Close()
	e := rivers()
	// The schema declares a column that rows lack: get's results do not fit.
	e.Schema = strings.Replace(e.Schema, `, "nulls": 1`, ``, 1)
	err := tools.Make(context.Background(), pool, e)
	var fault *toolcheck.Fault
	if !errors.As(err, &fault) || fault.Gate != toolcheck.GateTotal || fault.Tool != "get_river" {
		t.Errorf("error %v", err)
	}
}
