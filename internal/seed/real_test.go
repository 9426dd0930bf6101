package seed

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const realTables = "../../../shared/data/tables"

// What becomes of real tables. REFUSED stands for an error that holds the
// rest of the text.
var realOutcomes = map[string]string{
	"538_airline-safety_airline-safety.csv":       "airline name 56",
	"538_alcohol-consumption_drinks.csv":          "country name 193",
	"538_avengers_avengers.csv":                   "avenger name_alias 158",
	"538_bad-drivers_bad-drivers.csv":             "state name 51",
	"538_bechdel_movies.csv":                      "movie title 1631",
	"538_candy-power-ranking_candy-data.csv":      "competitor competitorname 85",
	"538_chess-transfers_transfers.csv":           "transfer name 932",
	"538_college-majors_recent-grads.csv":         "major name 110",
	"country_codes.csv":                           "country cldr_display_name 247",
	"goodbooks_first1000.csv":                     "goodbook original_title 796",
	"periodic_table.csv":                          "periodic name 119",
	"sp500_constituents.csv":                      "security name 489",
	"vega_airports.csv":                           "airport name 3115",
	"vega_countries.json":                         "country name 620",
	"vega_gapminder.json":                         "gapminder name 682",
	"vega_londonTubeLines.json":                   "REFUSED no column besides the key can stay",
	"vega_penguins.json":                          "penguin name 344",
	"vega_political-contributions.json":           "candidate candidate_name 56",
	"vega_seattle-weather.csv":                    "weather date 1461",
	"vega_us-employment.csv":                      "employment month 120",
	"wikitable_202-158_Timeline-of-chemical":      "element name 101",
	"wikitable_203-104_List-of-Olympic":           "athlete name 31",
	"wikitable_203-144_List-of-European":          "island name 88",
	"wikitable_203-58_List-of-airlines":           "airline name 126",
	"wikitable_203-749_List-of-radio-stations":    "station call_sign 126",
	"wikitable_203-762_List-of-2002-box-office":   "film date 52",
	"wikitable_203-787_Dublin-Marathon.csv":       "marathon womens_winner 31",
	"wikitable_203-79_List-of-American-superhero": "film name 116",
	"wikitable_204-392_List-of-covered-stadiums":  "stadium name 53",
	"wikitable_204-457_List-of-United-States":     "ship ship_name 100",
	"wikitable_204-570_List-of-highest-mountains": "mountain name 115",
	"wikitable_204-633_Sample-return-mission.csv": "mission name 24",
	"wikitable_204-799_List-of-bridges":           "bridge name 37",
	"wikitable_204-850_List-of-largest":           "locomotive name 41",
	"wikitable_questions.tsv":                     "question id 99",
}

func TestRealTablesBecomeEnvironmentsOrAreRefusedWithAReason(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(realTables, "*"))
	if err != nil || len(files) == 0 {
		t.Skip("no real tables beside the repository")
	}
	var tables []*Table
	for _, file := range files {
		name := filepath.Base(file)
		want := ""
		for prefix, outcome := range realOutcomes {
			if strings.HasPrefix(name, prefix) {
				want = outcome
			}
		}
		if want == "" {
			t.Errorf("%s: no expected outcome", name)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := Document{Path: file, Content: content}
		d.Source.Title, d.Source.Digest = name, fmt.Sprintf("%x", sha256.Sum256(content))
		table, err := Parse(d, DefaultLimits)
		if reason, refused := strings.CutPrefix(want, "REFUSED "); refused {
			if err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: got %v, want an error with %q", name, err, reason)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprintf("%s %s %d", table.Noun, table.Columns[0].Name, len(table.Rows)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		tables = append(tables, table)
	}
	groups, err := Relate(tables, Heldout{Share: 0.3})
	if err != nil {
		t.Fatal(err)
	}
	joins := 0
	for _, g := range groups {
		joins += len(g.Joins)
	}
	environments := collect(t, groups, Options{Seed: 1, Rows: 40, PerGroup: 2, Variants: 2})
	t.Logf("%d tables, %d joins, %d environments", len(tables), joins, len(environments))
	if joins == 0 || len(environments) < len(groups) {
		t.Errorf("%d joins, %d environments of %d groups", joins, len(environments), len(groups))
	}
}

func TestTablesInTheBinaryAreWhatTheirGeneratorMakes(t *testing.T) {
	if _, err := os.Stat(realTables); err != nil {
		t.Skip("no real tables beside the repository")
	}
	if testing.Short() {
		t.Skip("compiles the generator")
	}
	dir := t.TempDir()
	command := exec.Command("go", "run", "./_generate", "-raw", realTables, "-out", dir)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	made, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadDir("builtin")
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(kept) {
		t.Errorf("%d files are made, %d are kept", len(made), len(kept))
	}
	for _, file := range made {
		want, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("builtin", file.Name()))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("builtin/%s is not what the generator makes (%v)", file.Name(), err)
		}
	}
}
