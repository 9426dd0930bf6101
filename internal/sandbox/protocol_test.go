package sandbox

import (
	"bufio"
	"bytes"
	"reflect"
	"testing"
)

func TestFramesCarryWhatWasSent(t *testing.T) {
	requests := []request{
		newLoadRequest(testProgram()),
		callRequest{"d", "tool", `{"a": 1}`},
		runRequest{"d", DataOnly, "source\n", "f", "{}"},
		helloRequest{1, 2, 3, 4, true},
	}
	for _, want := range requests {
		got, err := parseRequest(want.append(nil))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	}
	want := Result{Status: Raised, Value: "v", Code: "c", Error: "e", Source: "s", Line: 3, Column: 4, Steps: 5,
		Calls: []Call{{"n", "a", OK, "v"}, {"n", "b", Refused, "w"}}}
	got, err := parseResult(appendResult(nil, want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v came back as %+v, %v", want, got, err)
	}
}

func TestAFrameLongerThanAllowedIsRefused(t *testing.T) {
	frame := finishFrame(append(make([]byte, 4), make([]byte, 100)...))
	if _, err := readFrame(bufio.NewReader(bytes.NewReader(frame)), nil, 99); err == nil {
		t.Error("100 bytes passed a limit of 99")
	}
	if _, err := readFrame(bufio.NewReader(bytes.NewReader(frame[:50])), nil, 100); err == nil {
		t.Error("a cut frame passed")
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(newLoadRequest(testProgram()).append(nil))
	f.Add(callRequest{"d", "tool", "{}"}.append(nil))
	f.Add(runRequest{"d", WithTools, "s", "f", "{}"}.append(nil))
	f.Add(helloRequest{1, 2, 3, 4, false}.append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := parseRequest(body)
		if err != nil {
			return
		}
		again, err := parseRequest(req.append(nil))
		if err != nil || !reflect.DeepEqual(req, again) {
			t.Errorf("%+v is not stable: %+v, %v", req, again, err)
		}
	})
}

func FuzzParseResult(f *testing.F) {
	f.Add(appendResult(nil, Result{Status: OK, Value: "1"}))
	f.Add(appendResult(nil, Result{Status: Raised, Calls: []Call{{"n", "a", OK, "v"}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseResult(body)
		if err != nil {
			return
		}
		again, err := parseResult(appendResult(nil, r))
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v is not stable: %+v, %v", r, again, err)
		}
	})
}
