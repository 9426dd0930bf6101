package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/seed"
)

// origin says where a raw file was taken from.
type origin struct{ repository, commit, path, title, licence string }

const (
	vega         = "vega/vega-datasets"
	vegaCommit   = "cad85578e232704bb0453544742440038038c6a2"
	thirty       = "fivethirtyeight/data"
	thirtyCommit = "fcf572c4fba05a42f1f34f415bd5e6dc389efd68"
	publicDomain = "LicenseRef-public-domain"
)

// Only files of these licences may be here: CC0, PDDL, public domain, CC-BY.
var origins = map[string]origin{
	"vega_gapminder.json":                    {vega, vegaCommit, "data/gapminder.json", "Gapminder.org via vega-datasets", "CC-BY-4.0"},
	"vega_penguins.json":                     {vega, vegaCommit, "data/penguins.json", "Palmer Archipelago penguins via vega-datasets", "CC0-1.0"},
	"vega_political-contributions.json":      {vega, vegaCommit, "data/political-contributions.json", "US Federal Election Commission via vega-datasets", "CC0-1.0"},
	"vega_seattle-weather.csv":               {vega, vegaCommit, "data/seattle-weather.csv", "Seattle weather, NOAA, via vega-datasets", publicDomain},
	"vega_us-employment.csv":                 {vega, vegaCommit, "data/us-employment.csv", "US employment, Bureau of Labor Statistics, via vega-datasets", publicDomain},
	"538_bechdel_movies.csv":                 {thirty, thirtyCommit, "bechdel/movies.csv", "FiveThirtyEight, Bechdel test", "CC-BY-4.0"},
	"538_airline-safety_airline-safety.csv":  {thirty, thirtyCommit, "airline-safety/airline-safety.csv", "FiveThirtyEight, airline safety", "CC-BY-4.0"},
	"538_alcohol-consumption_drinks.csv":     {thirty, thirtyCommit, "alcohol-consumption/drinks.csv", "FiveThirtyEight, alcohol consumption", "CC-BY-4.0"},
	"538_avengers_avengers.csv":              {thirty, thirtyCommit, "avengers/avengers.csv", "FiveThirtyEight, Avengers", "CC-BY-4.0"},
	"538_candy-power-ranking_candy-data.csv": {thirty, thirtyCommit, "candy-power-ranking/candy-data.csv", "FiveThirtyEight, candy power ranking", "CC-BY-4.0"},
	"538_college-majors_recent-grads.csv":    {thirty, thirtyCommit, "college-majors/recent-grads.csv", "FiveThirtyEight, college majors", "CC-BY-4.0"},
	"538_bad-drivers_bad-drivers.csv":        {thirty, thirtyCommit, "bad-drivers/bad-drivers.csv", "FiveThirtyEight, bad drivers", "CC-BY-4.0"},
	"538_chess-transfers_transfers.csv":      {thirty, thirtyCommit, "chess-transfers/transfers.csv", "FiveThirtyEight, chess transfers", "CC-BY-4.0"},
	"country_codes.csv":                      {"datasets/country-codes", "caa72d1e0e5af8876c170bb36a9e4d64a01bba88", "data/country-codes.csv", "Country codes, Open Knowledge datasets", "PDDL-1.0"},
	"sp500_constituents.csv":                 {"datasets/s-and-p-500-companies", "56509dd80619e4d8e1410c2260d68ddd3eab6068", "data/constituents.csv", "S&P 500 companies, Open Knowledge datasets", "PDDL-1.0"},
}

const (
	key      = episode.ColumnKey
	category = episode.ColumnCategory
	words    = episode.ColumnText
	integer  = episode.ColumnInteger
)

// Columns of the raw files with long names.
const (
	drivers  = "Number of drivers involved in fatal collisions per billion miles"
	speeding = "Percentage Of Drivers Involved In Fatal Collisions Who Were Speeding"
	drinking = "Percentage Of Drivers Involved In Fatal Collisions Who Were Alcohol-Impaired"
	premium  = "Car Insurance Premiums ($)"
	losses   = "Losses incurred by insurance companies for collisions per insured driver ($)"
)

var joins = []seed.CatalogueJoin{
	{Table: "country", Column: "currency", To: "currency"},
	{Table: "transfer", Column: "to", To: "federation"},
	{Table: "day", Column: "month", To: "month"},
	{Table: "company", Column: "state", To: "state"},
	{Table: "candidate", Column: "state", To: "state"},
}

var tables = []table{
	{
		noun: "country", raw: "country_codes.csv", split: episode.SplitTrain,
		domain: "travel and places", subdomain: "countries", topic: "countries of the world",
		prepare: regions, prepared: "region: the narrowest of the source's three, shortened",
		columns: []column{
			{"name", key, "", text("CLDR display name")},
			{"continent", category, "", text("Region Name")},
			{"region", category, "", text("region")},
			{"currency", category, "", text("ISO4217-currency_alphabetic_code")},
			{"capital", words, "", text("Capital")},
			{"languages", integer, "languages", number("languages", 1)},
		},
	},
	{
		noun: "currency", raw: "country_codes.csv", split: episode.SplitTrain,
		domain: "commerce and products", subdomain: "money", topic: "currencies of the world",
		prepare: currencies, prepared: "row of a country merged into its currency's",
		columns: []column{
			{"code", key, "", text("ISO4217-currency_alphabetic_code")},
			{"title", words, "", text("ISO4217-currency_name")},
			{"digits", integer, "decimal digits", number("ISO4217-currency_minor_unit", 1)},
			{"number", integer, "", number("ISO4217-currency_numeric_code", 1)},
			{"users", integer, "countries", number("users", 1)},
		},
	},
	{
		noun: "federation", raw: "country_codes.csv", split: episode.SplitTrain,
		domain: "sport and games", subdomain: "clubs", topic: "countries by their Olympic codes",
		prepare: regions, prepared: "region: the narrowest of the source's three, shortened",
		columns: []column{
			{"code", key, "", text("IOC")},
			{"continent", category, "", text("Region Name")},
			{"region", category, "", text("region")},
			{"nation", words, "", text("CLDR display name")},
			{"domain", words, "", text("TLD")},
			{"languages", integer, "languages", number("languages", 1)},
		},
	},
	{
		noun: "nation", raw: "vega_gapminder.json", split: episode.SplitTrain,
		domain: "society and government", subdomain: "population", topic: "population and health of nations",
		prepare: yearsTogether, prepared: "row of another year merged into the nation's",
		columns: []column{
			{"name", key, "", text("country")},
			{"cluster", category, "", choice("cluster", "number of the cluster written as a word", clusters)},
			{"people", integer, "100,000 people in 2005", number("pop", 1e-5)},
			{"life", integer, "years in 2005", number("life_expect", 1)},
			{"gain", integer, "years of life from 1955 to 2005", number("gain", 1)},
			{"births", integer, "children of 100 women in 2005", number("fertility", 100)},
		},
	},
	{
		noun: "drink", raw: "538_alcohol-consumption_drinks.csv", split: episode.SplitTrain,
		domain: "culture and media", subdomain: "food and drink", topic: "drinking by country",
		columns: []column{
			{"country", key, "", text("country")},
			{"beer", integer, "servings a person a year", number("beer_servings", 1)},
			{"spirit", integer, "servings a person a year", number("spirit_servings", 1)},
			{"wine", integer, "servings a person a year", number("wine_servings", 1)},
			{"alcohol", integer, "0.1 litres a person a year", number("total_litres_of_pure_alcohol", 10)},
		},
	},
	{
		noun: "candy", raw: "538_candy-power-ranking_candy-data.csv", split: episode.SplitTrain,
		domain: "commerce and products", subdomain: "products", topic: "sweets and how people like them",
		columns: []column{
			{"name", key, "", text("competitorname")},
			{"chocolate", category, "", choice("chocolate", "1 and 0 written as yes and no", yesNo)},
			{"fruity", category, "", choice("fruity", "1 and 0 written as yes and no", yesNo)},
			{"bar", category, "", choice("bar", "1 and 0 written as yes and no", yesNo)},
			{"sugar", integer, "percentile", number("sugarpercent", 100)},
			{"wins", integer, "% of match-ups", number("winpercent", 1)},
		},
	},
	{
		noun: "major", raw: "538_college-majors_recent-grads.csv", split: episode.SplitTrain,
		domain: "work and organisations", subdomain: "education", topic: "college majors and what follows",
		columns: []column{
			{"name", key, "", then(text("Major"), "capitals written small", title)},
			{"field", category, "", then(text("Major_category"), "shortened", shorten)},
			{"students", integer, "100 students", number("Total", 0.01)},
			{"women", integer, "%", number("ShareWomen", 100)},
			{"jobless", integer, "0.1 %", number("Unemployment_rate", 1000)},
			{"salary", integer, "USD a year", number("Median", 1)},
		},
	},
	{
		noun: "airline", raw: "538_airline-safety_airline-safety.csv", split: episode.SplitTrain,
		domain: "travel and places", subdomain: "transport", topic: "airlines and their safety",
		prepare: asterisks, prepared: "asterisk of the name made a column",
		columns: []column{
			{"name", key, "", text("airline")},
			{"regional", category, "", text("regional")},
			{"seats", integer, "million seat kilometres a week", number("avail_seat_km_per_week", 1e-6)},
			{"incidents", integer, "1985 to 1999", number("incidents_85_99", 1)},
			{"deaths", integer, "1985 to 1999", number("fatalities_85_99", 1)},
			{"recent", integer, "incidents 2000 to 2014", number("incidents_00_14", 1)},
		},
	},
	{
		noun: "movie", raw: "538_bechdel_movies.csv", split: episode.SplitTrain, most: 200,
		domain: "culture and media", subdomain: "films", topic: "films and the Bechdel test",
		columns: []column{
			{"title", key, "", text("title")},
			{"test", category, "", text("clean_test")},
			{"result", category, "", then(text("binary"), "capitals written small", strings.ToLower)},
			{"year", integer, "", number("year", 1)},
			{"budget", integer, "million USD", number("budget", 1e-6)},
			{"gross", integer, "million USD in the US", number("domgross", 1e-6)},
		},
	},
	{
		noun: "transfer", raw: "538_chess-transfers_transfers.csv", split: episode.SplitTrain, most: 150,
		domain: "sport and games", subdomain: "players", topic: "chess players who changed federation",
		prepare: transferDates, prepared: "date split into year and month",
		columns: []column{
			{"player", key, "", text("ID")},
			{"to", category, "", text("Federation")},
			{"former", category, "", text("Form.Fed")},
			{"year", integer, "", number("year", 1)},
			{"month", integer, "", number("month", 1)},
		},
	},
	{
		noun: "penguin", raw: "vega_penguins.json", split: episode.SplitTrain, most: 150,
		domain: "science and nature", subdomain: "animals", topic: "penguins of the Palmer Archipelago",
		prepare: penguinNames, prepared: "key made of species and running number",
		columns: []column{
			{"name", key, "", text("name")},
			{"species", category, "", text("Species")},
			{"island", category, "", text("Island")},
			{"sex", category, "", choice("Sex", "capitals written small", map[string]string{"MALE": "male", "FEMALE": "female"})},
			{"flipper", integer, "mm", number("Flipper Length (mm)", 1)},
			{"mass", integer, "g", number("Body Mass (g)", 1)},
		},
	},
	{
		noun: "day", raw: "vega_seattle-weather.csv", split: episode.SplitTrain, most: 200,
		domain: "science and nature", subdomain: "weather", topic: "weather of Seattle",
		prepare: monthsOfDays, prepared: "month taken from the date",
		columns: []column{
			{"date", key, "", text("date")},
			{"month", words, "", text("month")},
			{"weather", category, "", text("weather")},
			{"rain", integer, "0.1 mm", number("precipitation", 10)},
			{"high", integer, "0.1 degrees Celsius", number("temp_max", 10)},
			{"wind", integer, "0.1 m/s", number("wind", 10)},
		},
	},
	{
		noun: "month", raw: "vega_us-employment.csv", split: episode.SplitTrain,
		domain: "work and organisations", subdomain: "employment", topic: "employment in the United States by month",
		prepare: seasons, prepared: "date cut to the month, season taken from it",
		columns: []column{
			{"date", key, "", text("month")},
			{"season", category, "", text("season")},
			{"year", integer, "", number("year", 1)},
			{"building", integer, "1,000 people in construction", number("construction", 1)},
			{"mining", integer, "1,000 people", number("mining_and_logging", 1)},
			{"change", integer, "1,000 people against the month before", number("nonfarm_change", 1)},
		},
	},

	// Held out.
	{
		noun: "company", raw: "sp500_constituents.csv", split: episode.SplitHeldout, most: 200,
		domain: "commerce and products", subdomain: "companies", topic: "large companies of the United States",
		prepare: headquarters, prepared: "headquarters split into city and state",
		columns: []column{
			{"name", key, "", text("Security")},
			{"sector", category, "", text("GICS Sector")},
			{"state", category, "", text("state")},
			{"city", words, "", text("city")},
			{"founded", integer, "", then(text("Founded"), "only the first year kept", firstWord)},
			{"listed", integer, "", then(text("Date added"), "date cut to the year", func(s string) string { return s[:min(4, len(s))] })},
		},
	},
	{
		noun: "state", raw: "538_bad-drivers_bad-drivers.csv", split: episode.SplitHeldout,
		domain: "society and government", subdomain: "traffic", topic: "drivers of the states of the US",
		columns: []column{
			{"name", key, "", text("State")},
			{"crashes", integer, "drivers in fatal collisions per 10 billion miles", number(drivers, 10)},
			{"speeding", integer, "% of them", number(speeding, 1)},
			{"drinking", integer, "% of them", number(drinking, 1)},
			{"premium", integer, "USD a year", number(premium, 1)},
			{"loss", integer, "USD a driver", number(losses, 1)},
		},
	},
	{
		noun: "candidate", raw: "vega_political-contributions.json", split: episode.SplitHeldout,
		domain: "society and government", subdomain: "elections", topic: "candidates for the US Congress and their money",
		columns: []column{
			{"name", key, "", then(text("Candidate_Name"), "capitals written small", title)},
			{"party", category, "", text("Party_Affiliation")},
			{"status", category, "", choice("Incumbent_Challenger_Status", "letter written as a word", map[string]string{"C": "challenger", "I": "incumbent", "O": "open"})},
			{"state", words, "", choice("Candidate_State", "postal code written out", postal)},
			{"district", integer, "", number("Candidate_District", 1)},
			{"spent", integer, "USD", number("Total_Disbursements", 1)},
		},
	},
	{
		noun: "avenger", raw: "538_avengers_avengers.csv", split: episode.SplitHeldout,
		domain: "culture and media", subdomain: "comics", topic: "heroes of a comic series",
		columns: []column{
			{"name", key, "", text("Name/Alias")},
			{"gender", category, "", then(text("Gender"), "capitals written small", strings.ToLower)},
			{"status", category, "", then(text("Honorary"), "capitals written small", strings.ToLower)},
			{"debut", words, "", text("Full/Reserve Avengers Intro")},
			{"joined", integer, "", number("Year", 1)},
			{"issues", integer, "", number("Appearances", 1)},
		},
	},
}

// clusters are the groups of the Gapminder file: it numbers them, and the
// words say which part of the world most of each lies in.
var clusters = map[string]string{"0": "South Asia", "1": "Europe", "2": "Africa", "3": "America", "4": "East Asia", "5": "Middle East"}

// regions takes the narrowest region that a text may hold, and counts
// languages. Territories without a capital or a currency drop out later.
func regions(rows []record) []record {
	for _, r := range rows {
		r["region"] = r["Sub-region Name"]
		if s := r["Intermediate Region Name"]; s != "" {
			r["region"] = s
		}
		if len(r["region"]) > textLength {
			r["region"] = strings.ReplaceAll(r["region"], " and ", " & ")
		}
		if r["Languages"] != "" {
			r["languages"] = strconv.Itoa(1 + strings.Count(r["Languages"], ","))
		}
	}
	return rows
}

// currencies keeps one row a currency and counts the countries that use it.
func currencies(rows []record) []record {
	const code = "ISO4217-currency_alphabetic_code"
	users := map[string]int{}
	for _, r := range rows {
		users[r[code]]++
	}
	seen := map[string]bool{"": true}
	var kept []record
	for _, r := range rows {
		if seen[r[code]] {
			continue
		}
		seen[r[code]] = true
		r["users"] = strconv.Itoa(users[r[code]])
		kept = append(kept, r)
	}
	slices.SortFunc(kept, func(a, b record) int { return strings.Compare(a[code], b[code]) })
	return kept
}

// yearsTogether keeps the row of 2005 with what changed since 1955.
func yearsTogether(rows []record) []record {
	first := map[string]float64{}
	var kept []record
	for _, r := range rows {
		life, err := strconv.ParseFloat(r["life_expect"], 64)
		if err != nil {
			continue
		}
		switch r["year"] {
		case "1955":
			first[r["country"]] = life
		case "2005":
			if before, ok := first[r["country"]]; ok {
				r["gain"] = strconv.FormatFloat(life-before, 'f', 4, 64)
			}
			kept = append(kept, r)
		}
	}
	return kept
}

// asterisks: the file marks airlines whose regional subsidiaries are counted.
func asterisks(rows []record) []record {
	for _, r := range rows {
		r["regional"] = "no"
		if name, ok := strings.CutSuffix(r["airline"], "*"); ok {
			r["airline"], r["regional"] = name, "yes"
		}
	}
	return rows
}

func transferDates(rows []record) []record {
	for _, r := range rows {
		if t, err := time.Parse("1/2/06", r["Transfer Date"]); err == nil {
			r["year"], r["month"] = strconv.Itoa(t.Year()), strconv.Itoa(int(t.Month()))
		}
	}
	return rows
}

func penguinNames(rows []record) []record {
	counts := map[string]int{}
	for _, r := range rows {
		counts[r["Species"]]++
		r["name"] = fmt.Sprintf("%s %d", r["Species"], counts[r["Species"]])
	}
	return rows
}

func monthsOfDays(rows []record) []record {
	for _, r := range rows {
		r["month"] = r["date"][:7]
	}
	return rows
}

// seasons are those of the northern half of the world.
func seasons(rows []record) []record {
	for _, r := range rows {
		t, err := time.Parse("2006-01-02", r["month"])
		if err != nil {
			continue
		}
		r["month"], r["year"] = t.Format("2006-01"), strconv.Itoa(t.Year())
		r["season"] = []string{"winter", "spring", "summer", "autumn"}[int(t.Month())%12/3]
	}
	return rows
}

func headquarters(rows []record) []record {
	for _, r := range rows {
		if i := strings.LastIndex(r["Headquarters Location"], ", "); i > 0 {
			r["city"], r["state"] = shortenCity(r["Headquarters Location"][:i]), r["Headquarters Location"][i+2:]
		}
	}
	return rows
}

// shortenCity drops what stands in a city's name for another level.
func shortenCity(s string) string {
	city, _, _ := strings.Cut(s, ", ")
	return city
}

func firstWord(s string) string {
	for i, c := range s {
		if c < '0' || c > '9' {
			return s[:i]
		}
	}
	return s
}

// postal are the codes of the states of the US and of its capital district.
var postal = map[string]string{
	"AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California", "CO": "Colorado", "CT": "Connecticut",
	"DE": "Delaware", "DC": "District of Columbia", "FL": "Florida", "GA": "Georgia", "HI": "Hawaii", "ID": "Idaho", "IL": "Illinois",
	"IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky", "LA": "Louisiana", "ME": "Maine", "MD": "Maryland",
	"MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota", "MS": "Mississippi", "MO": "Missouri", "MT": "Montana", "NE": "Nebraska",
	"NV": "Nevada", "NH": "New Hampshire", "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York", "NC": "North Carolina",
	"ND": "North Dakota", "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon", "PA": "Pennsylvania", "RI": "Rhode Island",
	"SC": "South Carolina", "SD": "South Dakota", "TN": "Tennessee", "TX": "Texas", "UT": "Utah", "VT": "Vermont", "VA": "Virginia",
	"WA": "Washington", "WV": "West Virginia", "WI": "Wisconsin", "WY": "Wyoming",
}
