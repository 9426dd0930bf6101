package toolcall

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// In the texts below « and » mark the culprit; side by side they mark the place
// of missing text. A text without them is clean.
func splitMarks(marked string) (text string, culprit span, marks bool) {
	start := strings.Index(marked, "«")
	if start < 0 {
		return marked, span{}, false
	}
	text = strings.Replace(marked, "«", "", 1)
	end := strings.Index(text, "»")
	return strings.Replace(text, "»", "", 1), span{start, end}, true
}

// call writes a call the way the policy does.
func call(object string) string { return "<tool_call>\n" + object + "\n</tool_call>" }

var singleTurnCases = []struct {
	name string
	turn string // marked
	kind string // "" where the turn is clean
}{
	{"good call", getChad, ""},
	{"good call on one line", `<tool_call>{"name": "get_country", "arguments": {"name": "Chad"}}</tool_call>`, ""},
	{"prose before a call", "Let me look.\n" + getChad, ""},

	{"trailing comma", call(`{"name": "get_country", "arguments": {"name": "Chad",«}»}`), "malformed_json"},
	{"missing brace", "<tool_call>\n" + `{"name": "get_country", "arguments": {"name": "Chad"}` + "\n«</tool_call>»", "malformed_json"},
	{"surplus brace", call(`{"name": "get_country", "arguments": {"name": "Chad"}}«}»`), "malformed_json"},
	{"single quotes", call(`{«'name'»: 'get_country', 'arguments': {'name': 'Chad'}}`), "malformed_json"},
	{"missing comma", call(`{"name": "get_country" «"arguments"»: {"name": "Chad"}}`), "malformed_json"},
	{"bare key", call(`{"name": "get_country", «arguments»: {"name": "Chad"}}`), "malformed_json"},
	{"quote inside a string", call(`{"name": "get_country", "arguments": {"name": "the "«Chad»" basin"}}`), "malformed_json"},
	{"python literal", call(`{"name": "note", "arguments": {"n": «None»}}`), "malformed_json"},
	{"NaN", call(`{"name": "note", "arguments": {"n": «NaN»}}`), "malformed_json"},
	{"Infinity", call(`{"name": "note", "arguments": {"n": -«Infinity»}}`), "malformed_json"},
	{"leading zero", call(`{"name": "note", "arguments": {"n": 0«12»}}`), "malformed_json"},
	{"literal that goes wrong", call(`{"name": "note", "arguments": {"n": tru«th»}}`), "malformed_json"},
	{"raw line end in a string", call(`{"name": "note", "arguments": {"text": "a«` + "\n" + `»b"}}`), "malformed_json"},
	{"unclosed string", "<tool_call>\n" + `{"name": "get_country", "arguments": {"name": "Chad}}«` + "\n" + `»</tool_call>`, "malformed_json"},
	{"unclosed string on one line", `<tool_call>{"name": "get_country", "arguments": {"name": "Chad}}«</tool_call>»`, "malformed_json"},
	{"duplicate key", call(`{"name": "note", "arguments": {"n": 1, «"n"»: 2}}`), "malformed_json"},
	{"duplicate key by escape", call(`{"name": "note", "arguments": {"n": 1, «"\u006e"»: 2}}`), "malformed_json"},
	{"no such escape", call(`{"name": "note", "arguments": {"text": "\«q»"}}`), "malformed_json"},
	{"lone surrogate", call(`{"name": "note", "arguments": {"text": "«\ud83c» x"}}`), "malformed_json"},
	{"over-escaped", call(`{«\"»name\": \"note\"}`), "malformed_json"},
	{"two objects in one call", call(`{"name": "note", "arguments": {"n": 1}}` + "\n" + `«{"name": "note", "arguments": {"n": 2}}»`), "malformed_json"},
	{"prose in a call", "<tool_call>\n«get_country»(Chad)\n</tool_call>", "malformed_json"},
	{"empty call", "<tool_call>\n«</tool_call>»", "malformed_json"},
	{"call that is an array", call(`«[1]»`), "malformed_json"},
	{"call without a name", call(`{"arguments": {"name": "Chad"}«}»`), "malformed_json"},
	{"closing tag in a string", call(`{"name": "note", "arguments": {"text": "close it with </tool_call> on its own line"}}`), ""},
	{"opening tag in a string", call(`{"name": "note", "arguments": {"text": "open with <tool_call> please"}}`), ""},
	{"thinking tag in a string", call(`{"name": "note", "arguments": {"text": "the </think> tag"}}`), ""},
	{"escaped surrogate pair", call(`{"name": "note", "arguments": {"text": "cheers \ud83c\udf78"}}`), ""},
	{"escaped quotes", call(`{"name": "note", "arguments": {"text": "the \"blue\" ramp\\"}}`), ""},
	{"big integer", call(`{"name": "note", "arguments": {"n": 123456789012345678901234567890}}`), ""},
	{"huge exponent is still an integer", call(`{"name": "note", "arguments": {"n": 1e999999999}}`), ""},
	{"blank lines around the object", "<tool_call>\n\n  " + `{"name": "note", "arguments": {}}` + " \n\n</tool_call>", ""},
	{"keys of a call in the other order", call(`{"arguments": {"name": "Chad"}, "name": "get_country"}`), ""},
	{"further keys of a call", call(`{"id": 1, "name": "get_country", "arguments": {"name": "Chad"}}`), ""},
	{"escaped name", call(`{"name": "get\u005fcountry", "arguments": {"name": "Chad"}}`), ""},

	{"closer never comes", "<tool_call>\n" + `{"name": "get_country", "arguments": {"name": "Chad"}}` + "«»", "unclosed_call"},
	{"closer never comes, line ended", "<tool_call>\n" + `{"name": "get_country", "arguments": {"name": "Chad"}}` + "\n«»", "unclosed_call"},
	{"stops inside the object", "<tool_call>\n" + `{"name": "get_country", "arguments": {"name": "Ch` + "«»", "unclosed_call"},
	{"stops after the opener", "<tool_call>«»", "unclosed_call"},
	{"closer misspelled", "<tool_call>\n" + `{"name": "get_country", "arguments": {"name": "Chad"}}` + "\n«<»/tool_cal>", "unclosed_call"},
	{"next call opens instead", "<tool_call>\n" + `{"name": "get_country", "arguments": {"name": "Chad"}}` + "\n«<tool_call>»\n" + `{"name": "note", "arguments": {}}` + "\n</tool_call>", "unclosed_call"},

	{"arguments absent", call(`{"name": "get_country"«}»`), "arguments_not_object"},
	{"arguments under another key", call(`{"name": "get_country", «"parameters"»: {"name": "Chad"}}`), "arguments_not_object"},
	{"arguments as a string", call(`{"name": "get_country", "arguments": «"{\"name\": \"Chad\"}"»}`), "arguments_not_object"},
	{"arguments as an array", call(`{"name": "get_country", "arguments": «["Chad"]»}`), "arguments_not_object"},
	{"arguments null", call(`{"name": "get_country", "arguments": «null»}`), "arguments_not_object"},

	{"letters swapped in a name", call(`{"name": "get_«counrty»", "arguments": {"name": "Chad"}}`), "unknown_tool"},
	{"other verb", call(`{"name": "«find»_country", "arguments": {"name": "Chad"}}`), "unknown_tool"},
	{"name with a tail", call(`{"name": "get_country_«of»", "arguments": {"name": "Chad"}}`), "unknown_tool"},
	{"name cut", call(`{"name": "get_«countr»", "arguments": {"name": "Chad"}}`), "unknown_tool"},
	{"nothing like it", call(`{"name": "«web.search»", "arguments": {"q": "Chad"}}`), "unknown_tool"},
	{"name empty", call(`{"name": «""», "arguments": {}}`), "unknown_tool"},
	{"name a number", call(`{"name": «7», "arguments": {}}`), "unknown_tool"},

	{"required argument absent", call(`{"name": "get_country", "arguments": {"year": 1990«}»}`), "missing_argument"},
	{"no arguments at all", call(`{"name": "get_country", "arguments": {«}»}`), "missing_argument"},
	{"argument misnamed", call(`{"name": "get_country", "arguments": {"«nme»": "Chad"}}`), "unexpected_argument"},
	{"unexpected beside good ones", call(`{"name": "get_country", "arguments": {"name": "Chad", "«limit»": 3}}`), "unexpected_argument"},
	{"extras permitted by the schema", call(`{"name": "note", "arguments": {"text": "a", "colour": "blue"}}`), ""},
	{"string for an integer", call(`{"name": "list_country", "arguments": {"limit": «"3"»}}`), "argument_type"},
	{"integer for a string", call(`{"name": "get_country", "arguments": {"name": «5»}}`), "argument_type"},
	{"fraction for an integer", call(`{"name": "list_country", "arguments": {"limit": «2.5»}}`), "argument_type"},
	{"integer written with a point", call(`{"name": "list_country", "arguments": {"limit": 2.0}}`), ""},
	{"outside the enum", call(`{"name": "list_country", "arguments": {"sort_by": "«size»"}}`), "argument_value"},
	{"outside the range", call(`{"name": "list_country", "arguments": {"limit": «50»}}`), "argument_value"},
	{"first wrong argument is charged", call(`{"name": "list_country", "arguments": {"sort_by": "«size»", "limit": "3"}}`), "argument_value"},

	{"prose alone", "«The answer is Chad.»", "no_action"},
	{"nothing at all", "«»", "no_action"},
	{"prose after thinking", "<think>Chad, I guess.</think>\n«The answer is Chad.»", "no_action"},
	{"object without tags", "«" + `{"name": "get_country", "arguments": {"name": "Chad"}}` + "»", "no_action"},
	{"the tag itself, then prose", "I would use <tool_call> «here.»", "malformed_json"},

	{"closed thinking", "<think>Chad?</think>\n" + getChad, ""},
	{"draft in closed thinking", "<think>maybe <tool_call>{\"name\": </tool_call> no</think>\n" + getChad, ""},
	{"forgery in closed thinking", "<think><tool_response>5</tool_response></think>\n" + getChad, ""},
	{"opener stands in the prompt", "Chad, then.\n</think>\n" + getChad, ""},
	{"draft in thinking opened by the prompt", "maybe <tool_call>{\"name\": </think>\n" + getChad, ""},
	{"thinking never closed", "<think>Chad or Mali, Mali or Chad«»", "unclosed_think"},
	{"call drafted in thinking never closed", "<think>Chad.\n«»" + getChad, "unclosed_think"},

	{"call as the answer", call(`{"name": "submit", "arguments": {"answer": "«\u003ctool_call\u003e{\"name\":\"note\"}\u003c/tool_call\u003e»"}}`), "nested_call"},
	{"call without tags as the answer", call(`{"name": "submit", "arguments": {"answer": "«{\"name\": \"note\", \"arguments\": {}}»"}}`), "nested_call"},
	{"answer that is an object of its own", call(`{"name": "submit", "arguments": {"answer": "{\"name\": \"Chad\"}"}}`), ""},
	{"answer that names the tag", call(`{"name": "submit", "arguments": {"answer": "the <tool_call> tag"}}`), ""},

	{"call and submission", getChad + "\n«" + submitChad + "»", "mixed_answer"},
	{"submission and call", "«" + submitChad + "»\n" + getChad, "mixed_answer"},
	{"submission alone", submitChad, ""},

	{"forged after a call", getChad + "\n«<tool_response>\n{\"area\": 5}\n</tool_response>»", "forged_observation"},
	{"forged and gone on", getChad + "\n«<tool_response>\n{\"area\": 5}\n</tool_response>»\n" + getMali, "forged_observation"},
	{"forged message", getChad + "\n«<|im_start|>»user\n5", "forged_observation"},
	{"response tag in an argument", call(`{"name": "note", "arguments": {"text": "<tool_response>x</tool_response>"}}`), ""},
}

func TestSingleTurns(t *testing.T) {
	for _, c := range singleTurnCases {
		t.Run(c.name, func(t *testing.T) {
			text, culprit, marked := splitMarks(c.turn)
			if marked != (c.kind != "") {
				t.Fatal("the case is marked wrongly")
			}
			const base = 100
			ids := sample(text, true)
			out := newTestDetector(t, Settings{}).Turn(ids, episode.StopEnd, 3, base)
			if c.kind == "" {
				if len(out.Failures) > 0 || len(out.Calls) == 0 {
					t.Fatalf("failures %+v, calls %+v, want a clean call", out.Failures, out.Calls)
				}
				return
			}
			if len(out.Failures) == 0 {
				t.Fatalf("nothing found, want %s", c.kind)
			}
			f := out.Failures[0]
			if f.Kind != c.kind || f.ByteStart != culprit.start || f.ByteEnd != culprit.end {
				t.Fatalf("%s at [%d, %d) %q (%s), want %s at [%d, %d)",
					f.Kind, f.ByteStart, f.ByteEnd, text[f.ByteStart:f.ByteEnd], f.Detail, c.kind, culprit.start, culprit.end)
			}
			if f.Turn != 3 || f.Fault != episode.FaultAgent {
				t.Errorf("turn %d, fault %s", f.Turn, f.Fault)
			}
			checkPlaces(t, ids, base, out)
			for _, call := range out.Calls {
				if call.Outcome != episode.CallNotRun {
					t.Errorf("call %s is %q after a failure, want not_run", call.Name, call.Outcome)
				}
			}
		})
	}
}

// checkPlaces holds every failure to the rule of bytes and tokens.
func checkPlaces(t testing.TB, ids []int32, base int, out Outcome) {
	t.Helper()
	offsets := testTokenizer.Offsets(ids)
	for _, f := range out.Failures {
		lo, hi := f.TokenStart-base, f.TokenEnd-base
		if lo < 0 || lo >= hi || hi > len(ids) {
			t.Fatalf("%s: tokens [%d, %d) of %d", f.Kind, lo, hi, len(ids))
		}
		if f.CallTokenStart > f.TokenStart || f.CallTokenEnd < f.TokenEnd || f.CallTokenStart < base || f.CallTokenEnd > base+len(ids) {
			t.Errorf("%s: call tokens [%d, %d) do not hold the culprit's [%d, %d)",
				f.Kind, f.CallTokenStart, f.CallTokenEnd, f.TokenStart, f.TokenEnd)
		}
		if f.ByteStart < 0 || f.ByteStart > f.ByteEnd || f.ByteEnd > offsets[len(ids)] {
			t.Fatalf("%s: bytes [%d, %d) of %d", f.Kind, f.ByteStart, f.ByteEnd, offsets[len(ids)])
		}
		for j := range ids {
			meets := offsets[j] < f.ByteEnd && offsets[j+1] > f.ByteStart
			if meets && (j < lo || j >= hi) {
				t.Errorf("%s: token %d meets the culprit and is left out of [%d, %d)", f.Kind, j, lo, hi)
			}
		}
	}
}

// tokensOf shows the tokens of a failure one by one.
func tokensOf(ids []int32, lo, hi int) []string {
	var out []string
	for _, id := range ids[lo:hi] {
		out = append(out, string(testTokenizer.Bytes(id)))
	}
	return out
}

func TestDecisionTokenIsTheSampledTokenBefore(t *testing.T) {
	pieces := func(pieces ...string) (ids []int32) {
		for _, p := range pieces {
			ids = append(ids, testTokenizer.EncodeTrusted(p)...)
		}
		return ids
	}
	for _, c := range []struct {
		name string
		ids  []int32
		want []string
	}{
		{"white space between is passed over",
			pieces("<tool_call>", "\n", `{"name": "note", "arguments": {"n": 1`, "}", "\n", "</tool_call>", "<|im_end|>"),
			[]string{"}", "\n", "</tool_call>"}},
		{"unclosed call: the end token and what was sampled before it",
			pieces("<tool_call>", "\n", `{"name": "note", "arguments": {}`, "}", "<|im_end|>"),
			[]string{"}", "<|im_end|>"}},
		{"missing argument",
			pieces("<tool_call>", `{"name": "get_country", "arguments": `, "{", "}", "}", "</tool_call>", "<|im_end|>"),
			[]string{"{", "}"}},
		{"no decision token for a wrong value",
			pieces("<tool_call>", `{"name": "list_country", "arguments": {"limit": `, "9", "}}", "</tool_call>", "<|im_end|>"),
			[]string{"9"}},
		{"not before the turn",
			pieces("<tool_call>", "</tool_call>", "<|im_end|>"),
			[]string{"<tool_call>", "</tool_call>"}},
	} {
		out := newTestDetector(t, Settings{}).Turn(c.ids, episode.StopEnd, 0, 0)
		if len(out.Failures) == 0 {
			t.Errorf("%s: nothing found", c.name)
			continue
		}
		f := out.Failures[0]
		if got := tokensOf(c.ids, f.TokenStart, f.TokenEnd); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: culprit tokens %q, want %q", c.name, got, c.want)
		}
	}
}

func TestZeroWidthMapsToTheLastTokenWhereNoEndTokenWasSampled(t *testing.T) {
	ids := testTokenizer.EncodeTrusted("<tool_call>\n{")
	out := newTestDetector(t, Settings{}).Turn(ids, episode.StopEnd, 0, 7)
	f := out.Failures[0]
	if f.Kind != episode.KindUnclosedCall || f.TokenEnd != 7+len(ids) {
		t.Errorf("%+v, want unclosed_call up to token %d", f, 7+len(ids))
	}
}

func TestTagsSpelledOutAreTags(t *testing.T) {
	ids := append(testTokenizer.Encode(getChad), testTokenizer.EncodeTrusted(token.MessageEnd)...)
	out := newTestDetector(t, Settings{}).Turn(ids, episode.StopEnd, 0, 0)
	if len(out.Failures) > 0 || len(out.Calls) != 1 || out.Calls[0].TokenStart != 0 || out.Calls[0].TokenEnd != len(ids)-1 {
		t.Errorf("%+v, want the one call over all ids but the last", out)
	}
	spoken := append(testTokenizer.Encode("I would use <tool_call> here."), testTokenizer.EncodeTrusted(token.MessageEnd)...)
	out = newTestDetector(t, Settings{}).Turn(spoken, episode.StopEnd, 0, 0)
	if got := kindsOf(out.Failures); !slices.Equal(got, []string{episode.KindNoAction}) {
		t.Errorf("%v, want no_action: the tag is only spoken of", got)
	}
}

func TestCallsKeepTheirText(t *testing.T) {
	text := "First.\n" + call(`{"name": "note", "arguments": {"n":12345678901234567890123,  "text": "caf\u00e9"}}`) + "\n" + getMali
	ids := sample(text, true)
	out := newTestDetector(t, Settings{}).Turn(ids, episode.StopEnd, 0, 50)
	if len(out.Failures) > 0 || len(out.Calls) != 2 {
		t.Fatalf("%+v", out)
	}
	first := out.Calls[0]
	if want := `{"n":12345678901234567890123,  "text": "caf\u00e9"}`; first.Arguments != want {
		t.Errorf("arguments %s, want %s", first.Arguments, want)
	}
	if got := strings.Join(tokensOf(ids, first.TokenStart-50, first.TokenEnd-50), ""); !strings.Contains(got, "<tool_call>") || !strings.HasSuffix(got, "</tool_call>") {
		t.Errorf("tokens of the call hold %q", got)
	}
	if text[out.Calls[1].ByteStart:out.Calls[1].ByteEnd] != getMali {
		t.Error("bytes of the second call are not its text")
	}
}

func TestTooManyCalls(t *testing.T) {
	burst := func(n int) string {
		var b strings.Builder
		b.WriteString("All at once.\n")
		for i := range n {
			b.WriteString(call(`{"name": "note", "arguments": {"n": ` + strings.Repeat("1", i+1) + `}}`))
		}
		return b.String()
	}
	for _, c := range []struct {
		family string
		calls  int
		want   bool
	}{{"", 4, false}, {"", 5, true}, {episode.FamilyToolUse, 8, false}, {episode.FamilyToolUse, 9, true}} {
		text := burst(c.calls)
		ids := sample(text, true)
		out := newTestDetector(t, Settings{Family: c.family}).Turn(ids, episode.StopEnd, 0, 0)
		found := len(out.Failures) > 0 && out.Failures[0].Kind == episode.KindTooManyCalls
		if found != c.want {
			t.Errorf("%d calls in family %q: %v", c.calls, c.family, kindsOf(out.Failures))
		}
		if found {
			f := out.Failures[0]
			if got := text[f.ByteStart:f.ByteEnd]; strings.Count(got, callStart) != 1 || !strings.HasPrefix(got, callStart) {
				t.Errorf("culprit %q, want the surplus call", got)
			}
			burst := strings.Join(tokensOf(ids, f.CallTokenStart, f.CallTokenEnd), "")
			if strings.Count(burst, callStart) != c.calls || strings.Contains(burst, "once") {
				t.Errorf("call tokens hold %q, want the burst", burst)
			}
		}
	}
}

// feed gives texts to one detector, every call answered ok unless outcomes says
// otherwise, and returns the kinds found and the notices given in each turn.
func feed(t *testing.T, s Settings, texts []string, outcomes map[int]string) (kinds [][]string, notices []int) {
	t.Helper()
	d := newTestDetector(t, s)
	for i, text := range texts {
		ids := sample(text, true)
		out := d.Turn(ids, episode.StopEnd, 2*i, 0)
		checkPlaces(t, ids, 0, out)
		kinds = append(kinds, kindsOf(out.Failures))
		n := 0
		answered := make([]string, len(out.Calls))
		for j, c := range out.Calls {
			answered[j] = episode.CallOK
			if c.Notice {
				n++
				answered[j] = episode.CallNotice
			}
			if o := outcomes[i]; o != "" {
				answered[j] = o
			}
		}
		notices = append(notices, n)
		d.Observed(answered)
	}
	return kinds, notices
}

func TestRepeatedQuery(t *testing.T) {
	const repeated = episode.KindRepeatedQuery
	shouting := call(`{"name": "get_country", "arguments": {"name": "  CHAD "}}`)
	keys := call(`{"name": "get_country", "arguments": {"year": 1990, "name": "Chad"}}`)
	keysBack := call(`{"name": "get_country", "arguments": {"name": "chad", "year": 1.99e3}}`)
	for _, c := range []struct {
		name     string
		settings Settings
		turns    []string
		outcomes map[int]string
		kinds    []string // of the last turn
		notices  []int
	}{
		{"a notice, then a failure", Settings{}, []string{getChad, getChad, getChad}, nil, []string{repeated}, []int{0, 1, 0}},
		{"case and blanks do not matter", Settings{}, []string{getChad, shouting, getChad}, nil, []string{repeated}, []int{0, 1, 0}},
		{"order of keys and spelling of numbers do not matter", Settings{RepeatStrikes: 1}, []string{keys, keysBack}, nil, []string{repeated}, []int{0, 0}},
		{"one strike", Settings{RepeatStrikes: 1}, []string{getChad, getChad}, nil, []string{repeated}, []int{0, 0}},
		{"not in a row", Settings{RepeatStrikes: 1}, []string{getChad, getMali, getChad}, nil, nil, []int{0, 0, 0}},
		{"other arguments", Settings{RepeatStrikes: 1}, []string{keys, getChad}, nil, nil, []int{0, 0}},
		{"a strike is forgotten", Settings{}, []string{getChad, getChad, getMali, getMali}, nil, nil, []int{0, 1, 0, 1}},
		{"twins in one turn", Settings{RepeatStrikes: 1}, []string{getMali + getChad + getChad}, nil, []string{repeated}, []int{0}},
		{"twins below the limit", Settings{}, []string{getChad + getChad}, nil, nil, []int{1}},
		{"a refusal arms", Settings{RepeatStrikes: 1}, []string{getChad, getChad}, map[int]string{0: episode.CallRefused}, []string{repeated}, []int{0, 0}},
		{"a call that failed for the environment's reasons does not", Settings{RepeatStrikes: 1}, []string{getChad, getChad}, map[int]string{0: episode.CallError}, nil, []int{0, 0}},
		{"a tool that is not pure", Settings{RepeatStrikes: 1}, []string{diceRoll, diceRoll}, nil, nil, []int{0, 0}},
		{"conversation", Settings{RepeatStrikes: 1, Family: episode.FamilyConversation}, []string{getChad, getChad}, nil, nil, []int{0, 0}},
		{"switched off", Settings{RepeatStrikes: 1, Off: []string{repeated}}, []string{getChad, getChad}, nil, nil, []int{0, 0}},
	} {
		kinds, notices := feed(t, c.settings, c.turns, c.outcomes)
		if got := kinds[len(kinds)-1]; !slices.Equal(got, c.kinds) || !slices.Equal(notices, c.notices) {
			t.Errorf("%s: kinds %v, notices %v, want %v in the last turn, notices %v", c.name, kinds, notices, c.kinds, c.notices)
		}
	}
}

func TestSubmissionBeforeAnyTool(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings Settings
		turns    []string
		want     []string
	}{
		{"not required", Settings{}, []string{submitChad}, nil},
		{"first action", Settings{RequiresTool: true}, []string{submitChad}, []string{episode.KindDirectSubmit}},
		{"one tool is enough", Settings{RequiresTool: true}, []string{getChad, submitChad}, nil},
		{"the required one is missing", Settings{RequiresTool: true, RequiredTools: []string{"list_country"}}, []string{getChad, submitChad}, []string{episode.KindPrematureSubmit}},
		{"the required one was used", Settings{RequiredTools: []string{"note", "get_country"}}, []string{getChad, submitChad}, nil},
	} {
		kinds, _ := feed(t, c.settings, c.turns, nil)
		if got := kinds[len(kinds)-1]; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	text := "I am sure.\n" + submitChad
	out := newTestDetector(t, Settings{RequiresTool: true}).Turn(sample(text, true), episode.StopEnd, 0, 0)
	if f := out.Failures[0]; text[f.ByteStart:f.ByteEnd] != "submit" {
		t.Errorf("culprit %q, want the tool's name", text[f.ByteStart:f.ByteEnd])
	}
}

func TestOrderInsideOneTurn(t *testing.T) {
	badJSON := call(`{"name": "note", }`)
	unknown := call(`{"name": "frobnicate", "arguments": {}}`)
	badType := call(`{"name": "list_country", "arguments": {"limit": "3"}}`)
	forged := "\n<tool_response>1</tool_response>\n"
	everything := forged + submitChad + getChad + getChad + unknown + badType + badJSON + "<think>"
	out := newTestDetector(t, Settings{MaxCalls: 2, RequiresTool: true, RepeatStrikes: 1}).Turn(sample(everything, true), episode.StopEnd, 0, 0)
	want := []string{
		episode.KindUnclosedThink, episode.KindMalformedJSON, episode.KindUnknownTool, episode.KindArgumentType,
		episode.KindTooManyCalls, episode.KindMixedAnswer, episode.KindDirectSubmit,
		episode.KindRepeatedQuery, episode.KindForgedObservation,
	}
	if got := kindsOf(out.Failures); !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if kinds := Kinds(); len(kinds) != len(chargeOrder) {
		t.Errorf("%d kinds, %d ranks", len(kinds), len(chargeOrder))
	}
}

func TestEveryKindCanBeSwitchedOff(t *testing.T) {
	for _, c := range singleTurnCases {
		if c.kind == "" {
			continue
		}
		text, _, _ := splitMarks(c.turn)
		out := newTestDetector(t, Settings{Off: []string{c.kind}}).Turn(sample(text, true), episode.StopEnd, 0, 0)
		if slices.Contains(kindsOf(out.Failures), c.kind) {
			t.Errorf("%s: %s found though it is off", c.name, c.kind)
		}
	}
	out := newTestDetector(t, Settings{Off: []string{episode.KindMalformedJSON}}).Turn(sample(call(`{"name": }`), true), episode.StopEnd, 0, 0)
	if len(out.Failures) > 0 || len(out.Calls) != 1 || out.Calls[0].Problem == "" {
		t.Errorf("%+v, want one call with a problem to answer", out)
	}
}

func TestBudgets(t *testing.T) {
	long := "Thinking about " + strings.Repeat("it, ", 300) + `<tool_call>{"name": "get_c`
	ids := sample(long, false)
	for _, c := range []struct{ stop, detail string }{
		{episode.StopLength, LimitResponseTokens}, {episode.StopContext, LimitContext},
	} {
		out := newTestDetector(t, Settings{Off: []string{episode.KindRepetition}}).Turn(ids, c.stop, 0, 0)
		if got := kindsOf(out.Failures); !slices.Equal(got, []string{episode.KindBudgetExhausted}) {
			t.Fatalf("%s: %v, want budget_exhausted alone: the cut is no slip of the policy", c.stop, got)
		}
		f := out.Failures[0]
		if f.Detail != c.detail || f.TokenEnd != len(ids) || f.TokenStart != len(ids)-DefaultTailTokens {
			t.Errorf("%s: %+v, want the last %d of %d tokens", c.stop, f, DefaultTailTokens, len(ids))
		}
	}
	text := getMali + "\n" + getChad
	ids = sample(text, true)
	for _, c := range []struct {
		settings Settings
		detail   string
	}{{Settings{MaxTurns: 1}, LimitTurns}, {Settings{MaxToolCalls: 1}, LimitToolCalls}} {
		out := newTestDetector(t, c.settings).Turn(ids, episode.StopEnd, 0, 0)
		if len(out.Failures) != 1 || out.Failures[0].Kind != episode.KindBudgetExhausted || out.Failures[0].Detail != c.detail {
			t.Fatalf("%+v, want budget_exhausted by %s", out.Failures, c.detail)
		}
		if f := out.Failures[0]; text[f.ByteStart:f.ByteEnd] != getChad {
			t.Errorf("culprit %q, want the last call", text[f.ByteStart:f.ByteEnd])
		}
	}
	if out := newTestDetector(t, Settings{MaxTurns: 1}).Turn(sample(submitChad, true), episode.StopEnd, 0, 0); len(out.Failures) > 0 {
		t.Errorf("%+v, want the last turn to be allowed to submit", out.Failures)
	}
	d := newTestDetector(t, Settings{})
	d.Turn(ids, episode.StopEnd, 4, 10)
	if f := d.BudgetExhausted(LimitContext); f.Turn != 4 || f.TokenEnd != 10+len(ids) {
		t.Errorf("%+v, want the end of the latest turn", f)
	}
	if f := d.RuntimeError(1, episode.FaultEnvironment, "boom"); f.Fault != episode.FaultEnvironment || text[f.ByteStart:f.ByteEnd] != "Chad" {
		t.Errorf("%+v at %q, want the second call's values", f, text[f.ByteStart:f.ByteEnd])
	}
}

func TestCancelledTurnShowsNothing(t *testing.T) {
	if out := newTestDetector(t, Settings{}).Turn(sample("<tool_call>{", false), episode.StopCancelled, 0, 0); len(out.Failures) > 0 {
		t.Errorf("%+v", out.Failures)
	}
}

func TestRepetition(t *testing.T) {
	round := "the harbour office opens at nine so the harbour desk "
	looping := "<think>" + strings.Repeat(round, 20) + "</think>\n" + getChad
	out := newTestDetector(t, Settings{}).Turn(sample(looping, true), episode.StopEnd, 0, 0)
	if got := kindsOf(out.Failures); !slices.Equal(got, []string{episode.KindRepetition}) {
		t.Fatalf("%v, want repetition", got)
	}
	f := out.Failures[0]
	if f.ByteStart != len("<think>")+len(round) || f.ByteEnd != len("<think>")+20*len(round) {
		t.Errorf("culprit [%d, %d), want from the second round on", f.ByteStart, f.ByteEnd)
	}
	table := `[` + strings.TrimSuffix(strings.Repeat(`{"route": "N8", "status": "on time"}, `, 40), ", ") + `]`
	saving := call(`{"name": "note", "arguments": {"rows": ` + table + `}}`)
	if out := newTestDetector(t, Settings{}).Turn(sample(saving, true), episode.StopEnd, 0, 0); len(out.Failures) > 0 {
		t.Errorf("%v for a table in an argument", kindsOf(out.Failures))
	}
	short := "<think>" + strings.Repeat("no ", 20) + "</think>\n" + getChad
	if out := newTestDetector(t, Settings{}).Turn(sample(short, true), episode.StopEnd, 0, 0); len(out.Failures) > 0 {
		t.Errorf("%v for a short turn", kindsOf(out.Failures))
	}
}

func TestUnclosedThinkingSpan(t *testing.T) {
	text := "<think>" + strings.Repeat("weigh it ", 200)
	ids := sample(text, true)
	s := Settings{Off: []string{episode.KindRepetition}}
	f := newTestDetector(t, s).Turn(ids, episode.StopEnd, 0, 0).Failures[0]
	if f.TokenStart != len(ids)-1 || f.CallTokenEnd != len(ids) || f.CallTokenStart != len(ids)-1-DefaultTailTokens {
		t.Errorf("%+v of %d tokens, want the end token and the last %d before it", f, len(ids), DefaultTailTokens)
	}
	s.ThinkingOpen = true
	open := newTestDetector(t, s).Turn(sample("still thinking", true), episode.StopEnd, 0, 0)
	if got := kindsOf(open.Failures); !slices.Equal(got, []string{episode.KindUnclosedThink}) {
		t.Errorf("thinking opened by the prompt: %v", got)
	}
	if out := newTestDetector(t, s).Turn(sample("done</think>"+getChad, true), episode.StopEnd, 0, 0); len(out.Failures) > 0 {
		t.Errorf("%v, want a clean turn", kindsOf(out.Failures))
	}
}

func TestCoercion(t *testing.T) {
	wrong := call(`{"name": "list_country", "arguments": {"limit": "3", "continent": 7, "sort_by": "area"}}`)
	out := newTestDetector(t, Settings{Coerce: true}).Turn(sample(wrong, true), episode.StopEnd, 0, 0)
	if len(out.Failures) > 0 {
		t.Fatalf("%+v", out.Failures)
	}
	c := out.Calls[0]
	if want := `{"limit": 3, "continent": "7", "sort_by": "area"}`; c.Arguments != want || !slices.Equal(c.Coerced, []string{"/limit", "/continent"}) {
		t.Errorf("arguments %s, coerced %v, want %s", c.Arguments, c.Coerced, want)
	}
	beyond := call(`{"name": "list_country", "arguments": {"limit": "30"}}`)
	if out := newTestDetector(t, Settings{Coerce: true}).Turn(sample(beyond, true), episode.StopEnd, 0, 0); len(out.Failures) == 0 {
		t.Error("a value out of range passed by coercion")
	}
}

func TestConversationMayAnswerInProse(t *testing.T) {
	out := newTestDetector(t, Settings{Family: episode.FamilyConversation}).Turn(sample("Good morning.", true), episode.StopEnd, 0, 0)
	if len(out.Failures) > 0 {
		t.Errorf("%+v", out.Failures)
	}
}
