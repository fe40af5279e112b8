package strictjson_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/gresize/gresize/internal/strictjson"
)

type document struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	inside
	Rows  []row           `json:"rows,omitempty"`
	Other map[string]row  `json:"other,omitempty"`
	Free  json.RawMessage `json:"free,omitempty"`
	Plain []int           `json:"plain,omitempty"`
}

type inside struct {
	Extra *row `json:"extra,omitempty"`
}

type row struct {
	Bytes int64 `json:"bytes"`
	Next  *row  `json:"next,omitempty"`
}

func TestUnmarshal(t *testing.T) {
	for name, c := range map[string]struct{ data, fault string }{
		"sound":            {"{\"name\": \"a\",\n\"bytes\": 3}\n", ""},
		"too large":        {`{"name": "` + string(make([]byte, 200)) + `"}`, "212 bytes, at most 100"},
		"empty":            {"", "empty: a JSON document is wanted"},
		"blanks":           {" \n", "empty: a JSON document is wanted"},
		"cut off":          {"{\"name\": \"a\",\n", "line 2, column 1: unexpected EOF"},
		"no JSON":          {"{\n  name: 1}", "line 2, column 4: invalid character 'n' looking for beginning of object key string"},
		"wrong kind":       {"{\"name\": \"a\",\n \"bytes\": \"x\"}", "line 2, column 14: json: cannot unmarshal string into Go struct field document.bytes of type int64"},
		"number too large": {`{"bytes": 1e400}`, "line 1, column 16: json: cannot unmarshal number 1e400 into Go struct field document.bytes of type int64"},
		"unknown field":    {"{\"name\": \"a\",\n\"byts\": 3}", `line 2, column 11: json: unknown field "byts"`},
		"other letters":    {`{"name": "a", "Bytes": 3}`, `line 1, column 22: unknown field "Bytes": another spelling of a known one`},
		"both":             {"{\"name\": \"a\", \"bytes\": 3,\n\"BYTES\": 4}", `line 2, column 8: unknown field "BYTES": another spelling of a known one`},
		"a long s":         {`{"name": "a", "byteſ": 3}`, `line 1, column 23: unknown field "byteſ": another spelling of a known one`},
		"twice":            {`{"name": "a", "bytes": 3, "name": "b"}`, `line 1, column 33: field "name" stands twice`},
		"in a list":        {`{"rows": [{"bytes": 1}, {"BYTES": 1}]}`, `line 1, column 33: unknown field "BYTES": another spelling of a known one`},
		"behind a pointer": {`{"rows": [{"next": {"next": {"Bytes": 1}}}]}`, `line 1, column 37: unknown field "Bytes": another spelling of a known one`},
		"embedded":         {`{"extra": {"Bytes": 1}}`, `line 1, column 19: unknown field "Bytes": another spelling of a known one`},
		"embedded itself":  {`{"Extra": {"bytes": 1}}`, `line 1, column 9: unknown field "Extra": another spelling of a known one`},
		"in a map":         {`{"other": {"any Key": {"Bytes": 1}}}`, `line 1, column 31: unknown field "Bytes": another spelling of a known one`},
		"a map's twice":    {`{"other": {"k": {}, "k": {}}}`, `line 1, column 24: field "k" stands twice`},
		"any form twice":   {`{"free": [{"k": 1, "K": 2}, {"k": 1, "k": 2}]}`, `line 1, column 41: field "k" stands twice`},
		"escaped twice":    {`{"name": "a", "n\u0061me": "b"}`, `line 1, column 26: field "name" stands twice`},
		"two documents":    {"{}\n{}", "line 2, column 1: text behind the end of the document"},
		"garbage behind":   {"{}\n\x00", "line 2, column 1: text behind the end of the document"},
	} {
		t.Run(name, func(t *testing.T) {
			var d document
			err := strictjson.Unmarshal([]byte(c.data), 100, &d)
			if c.fault == "" {
				if err != nil || d.Name != "a" || d.Bytes != 3 {
					t.Errorf("%+v, %v", d, err)
				}
				return
			}
			if err == nil || err.Error() != c.fault {
				t.Errorf("%v\nwant %s", err, c.fault)
			}
		})
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"name": "a", "bytes": 3}`))
	f.Add([]byte(`{"Name": "a", "other": {"k": {"next": {"bytes": 3}}}, "rows": [{}, null], "plain": [1, 2], "free": [{"a": 1}]}`))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if err := strictjson.Unmarshal(data, 1<<10, &d); err != nil {
			return
		}
		if len(data) > 1<<10 {
			t.Errorf("%d bytes were taken", len(data))
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(data, &keys); err != nil {
			t.Error(err)
		}
		for key := range keys {
			if !slices.Contains([]string{"name", "bytes", "extra", "rows", "other", "free", "plain"}, key) {
				t.Errorf("key %q was taken", key)
			}
		}
	})
}
