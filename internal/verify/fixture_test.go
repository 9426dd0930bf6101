package verify_test

import (
	"encoding/json"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// lakes is an environment with every type of column, missing values, ties, a
// join, and columns that are called as words of Starlark or parameters of the
// list tool are.
func lakes(t testing.TB) *episode.Environment {
	t.Helper()
	schema := episode.Schema{Tables: []episode.TableSchema{
		{Path: "lake.json", Noun: "lake", Key: "name", Rows: 16, Columns: []episode.Column{
			{Name: "name", Type: episode.ColumnKey, Distinct: 16},
			{Name: "continent", Type: episode.ColumnCategory, Distinct: 4},
			{Name: "outflow", Type: episode.ColumnText, Distinct: 13, Nulls: 3},
			{Name: "area", Type: episode.ColumnNumber, Unit: "km2", Distinct: 15, Nulls: 1, Min: "58.0", Max: "82103"},
			{Name: "depth", Type: episode.ColumnInteger, Unit: "m", Distinct: 14, Min: "2", Max: "1642"},
			{Name: "surveyed", Type: episode.ColumnDate, Distinct: 16, Min: "1898-07-01", Max: "2019-03-02"},
			{Name: "salty", Type: episode.ColumnBoolean, Distinct: 2},
		}},
		{Path: "fish.json", Noun: "fish", Key: "species", Rows: 10, Columns: []episode.Column{
			{Name: "species", Type: episode.ColumnKey, Distinct: 10},
			{Name: "order", Type: episode.ColumnCategory, Distinct: 5},
			{Name: "class", Type: episode.ColumnText, Distinct: 10},
			{Name: "limit", Type: episode.ColumnInteger, Distinct: 10, Min: "3", Max: "320"},
			{Name: "home_lake", Type: episode.ColumnText, Distinct: 9},
		}, Joins: []episode.Join{{Column: "home_lake", Table: "lake", Key: "name"}}},
	}}
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	return &episode.Environment{
		EnvironmentID: "lakes", Family: episode.FamilyToolUse, Split: episode.SplitTrain, RequiresTool: true, Schema: string(text),
		Files: []episode.File{
			{Path: "lake.json", MediaType: "application/json", Content: `[
{"name": "Superior", "continent": "North America", "outflow": "St. Marys", "area": 82103, "depth": 406, "surveyed": "1955-06-01", "salty": false},
{"name": "Huron", "continent": "North America", "outflow": "St. Clair", "area": 59570.5, "depth": 229, "surveyed": "1957-06-01", "salty": false},
{"name": "Erie", "continent": "North America", "outflow": "Niagara", "area": 25700, "depth": 64, "surveyed": "1961-08-15", "salty": false},
{"name": "Great Salt Lake", "continent": "North America", "outflow": null, "area": 4400.25, "depth": 10, "surveyed": "1969-01-20", "salty": true},
{"name": "Victoria", "continent": "Africa", "outflow": "White Nile", "area": 59947, "depth": 84, "surveyed": "1928-02-11", "salty": false},
{"name": "Tanganyika", "continent": "Africa", "outflow": "Lukuga", "area": 32600, "depth": 1470, "surveyed": "1938-04-05", "salty": false},
{"name": "Malawi", "continent": "Africa", "outflow": "Shire", "area": 29500, "depth": 706, "surveyed": "1901-10-09", "salty": false},
{"name": "Turkana", "continent": "Africa", "outflow": null, "area": 6405, "depth": 109, "surveyed": "1932-12-01", "salty": true},
{"name": "Baikal", "continent": "Asia", "outflow": "Angara", "area": 31722.75, "depth": 1642, "surveyed": "1902-05-05", "salty": false},
{"name": "Balkhash", "continent": "Asia", "outflow": null, "area": 16400, "depth": 26, "surveyed": "1903-09-10", "salty": true},
{"name": "Issyk-Kul", "continent": "Asia", "outflow": "no river", "area": 6236, "depth": 668, "surveyed": "1935-03-17", "salty": true},
{"name": "Ladoga", "continent": "Europe", "outflow": "Neva", "area": 17891, "depth": 230, "surveyed": "1898-07-01", "salty": false},
{"name": "Onega", "continent": "Europe", "outflow": "Svir", "area": 9891, "depth": 127, "surveyed": "1899-07-30", "salty": false},
{"name": "Geneva", "continent": "Europe", "outflow": "Rhône", "area": 580.03, "depth": 310, "surveyed": "2019-03-02", "salty": false},
{"name": "Hornindalsvatnet", "continent": "Europe", "outflow": "Eidselva", "area": 50.8, "depth": 514, "surveyed": "1998-11-11", "salty": false},
{"name": "\"Old\" Pond", "continent": "Europe", "outflow": "Old Brook", "area": null, "depth": 10, "surveyed": "1970-01-01", "salty": false}
]
`},
			{Path: "fish.json", MediaType: "application/json", Content: `[
{"species": "lake trout", "order": "salmon", "class": "st-1", "limit": 150, "home_lake": "Superior"},
{"species": "walleye", "order": "perch", "class": "st-2", "limit": 107, "home_lake": "Erie"},
{"species": "yellow perch", "order": "perch", "class": "st-3", "limit": 50, "home_lake": "Huron"},
{"species": "Nile perch", "order": "perch", "class": "st-4", "limit": 200, "home_lake": "Victoria"},
{"species": "omul", "order": "salmon", "class": "st-5", "limit": 64, "home_lake": "Baikal"},
{"species": "golomyanka", "order": "sculpin", "class": "st-6", "limit": 22, "home_lake": "Baikal"},
{"species": "arctic char", "order": "salmon", "class": "st-7", "limit": 110, "home_lake": "Geneva"},
{"species": "sturgeon", "order": "sturgeon", "class": "st-8", "limit": 320, "home_lake": "Ladoga"},
{"species": "smelt", "order": "smelt", "class": "st-9", "limit": 18, "home_lake": "Onega"},
{"species": "sprat", "order": "herring", "class": "st-10", "limit": 3, "home_lake": "Tanganyika"}
]
`},
		},
	}
}
