package seed

// Topics is the matrix of what environments are about: macro domains and
// their micro domains, in report order.
var Topics = []struct {
	Domain     string
	Subdomains []string
}{
	{"travel and places", []string{"countries", "geography", "transport", "cities"}},
	{"commerce and products", []string{"companies", "products", "prices", "money"}},
	{"science and nature", []string{"animals", "weather", "matter", "space"}},
	{"society and government", []string{"population", "elections", "traffic", "law"}},
	{"culture and media", []string{"films", "books", "comics", "food and drink"}},
	{"sport and games", []string{"players", "clubs", "competitions"}},
	{"work and organisations", []string{"education", "employment", "projects", "offices"}},
}

// Unclassified is the domain of a table of which nothing was said.
const Unclassified = "unclassified"
