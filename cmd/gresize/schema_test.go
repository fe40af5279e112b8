package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
)

// schemaChecker knows the part of JSON Schema that docs/estimate.schema.json is written in. A keyword that it does not
// know is an error, so that nothing in the schema goes unchecked.
type schemaChecker struct{ root map[string]any }

func loadSchema(t *testing.T) schemaChecker {
	t.Helper()
	data, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	var c schemaChecker
	if err := json.Unmarshal(data, &c.root); err != nil {
		t.Fatal(err)
	}
	return c
}

// check says what is wrong with JSON text, nil when nothing is.
func (c schemaChecker) check(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return c.value(c.root, v, "$")
}

func (c schemaChecker) value(schema map[string]any, v any, at string) error {
	for keyword, want := range schema {
		if err := c.keyword(schema, keyword, want, v, at); err != nil {
			return err
		}
	}
	return nil
}

func (c schemaChecker) keyword(schema map[string]any, keyword string, want, v any, at string) error {
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	number, isNumber := v.(float64)
	text, isText := v.(string)
	switch keyword {
	case "$schema", "$id", "$defs", "title", "description":
	case "$ref":
		name := strings.TrimPrefix(want.(string), "#/$defs/")
		target, ok := c.root["$defs"].(map[string]any)[name].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: the schema has no %v", at, want)
		}
		return c.value(target, v, at)
	case "anyOf":
		var all []string
		for _, s := range want.([]any) {
			err := c.value(s.(map[string]any), v, at)
			if err == nil {
				return nil
			}
			all = append(all, err.Error())
		}
		return fmt.Errorf("%s: none of: %s", at, strings.Join(all, " | "))
	case "type":
		_, isBool := v.(bool)
		ok := map[string]bool{"object": isObject, "array": isList, "number": isNumber, "integer": isNumber && number == math.Trunc(number),
			"string": isText, "boolean": isBool}[want.(string)]
		if !ok {
			return fmt.Errorf("%s: %v is no %v", at, v, want)
		}
	case "const":
		if v != want {
			return fmt.Errorf("%s: %v, want %v", at, v, want)
		}
	case "enum":
		if isObject || isList || !slices.Contains(want.([]any), v) {
			return fmt.Errorf("%s: %v is none of %v", at, v, want)
		}
	case "required":
		for _, key := range want.([]any) {
			if _, ok := object[key.(string)]; isObject && !ok {
				return fmt.Errorf("%s: no %v", at, key)
			}
		}
	case "properties":
		for key, s := range want.(map[string]any) {
			if member, ok := object[key]; ok {
				if err := c.value(s.(map[string]any), member, at+"."+key); err != nil {
					return err
				}
			}
		}
	case "additionalProperties":
		for key := range object {
			if _, ok := schema["properties"].(map[string]any)[key]; want == false && !ok {
				return fmt.Errorf("%s: %s is not in the schema", at, key)
			}
		}
	case "items":
		for i, member := range list {
			if err := c.value(want.(map[string]any), member, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case "minimum":
		if isNumber && number < want.(float64) {
			return fmt.Errorf("%s: %v is below %v", at, v, want)
		}
	case "maximum":
		if isNumber && number > want.(float64) {
			return fmt.Errorf("%s: %v is above %v", at, v, want)
		}
	case "pattern":
		if isText && !regexp.MustCompile(want.(string)).MatchString(text) {
			return fmt.Errorf("%s: %q does not match %v", at, text, want)
		}
	default:
		return fmt.Errorf("%s: the checker does not know %q", at, keyword)
	}
	return nil
}

// schemaPath is absolute because some tests change the directory.
var schemaPath = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir + "/../../docs/estimate.schema.json"
}()

// TestJSONFormKeepsToItsSchema also sees to it that every key that is printed is described.
func TestJSONFormKeepsToItsSchema(t *testing.T) {
	c := loadSchema(t)
	p, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	described := c.root["$defs"].(map[string]any)["estimate"].(map[string]any)["properties"].(map[string]any)
	for name, x := range textCases() {
		data, err := json.Marshal(newReading(&x.result, p))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.check(data); err != nil {
			t.Errorf("%s: %v\n%s", name, err, data)
		}
		var printed map[string]any
		if err := json.Unmarshal(data, &printed); err != nil {
			t.Fatal(err)
		}
		for key := range printed {
			if described[key] == nil {
				t.Errorf("%s: %s is not described", name, key)
			}
		}
	}
}

func TestSchemaRefusesWhatIsWrong(t *testing.T) {
	c := loadSchema(t)
	p, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string]any){
		"no status":        func(m map[string]any) { delete(m, "status") },
		"a new status":     func(m map[string]any) { m["status"] = "perhaps" },
		"a fraction":       func(m map[string]any) { m["capacity_bytes"] = 1.5 },
		"a negative size":  func(m map[string]any) { m["ranks"].([]any)[0].(map[string]any)["outside_bytes"] = -1 },
		"a text as number": func(m map[string]any) { m["steps"] = "4" },
		"no code": func(m map[string]any) {
			m["reasons"] = []any{map[string]any{"code": "Not a code"}}
		},
		"another schema": func(m map[string]any) { m["schema"] = "gresize.estimate/2" },
	} {
		x := result(func(*probe.Result) {})
		data, err := json.Marshal(newReading(&x, p))
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		if data, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		if c.check(data) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, text := range []string{`{}`, `[]`, `{"error": "x"}`, `{"error": "x", "exit_code": 9}`} {
		if c.check([]byte(text)) == nil {
			t.Errorf("%s: accepted", text)
		}
	}
	if err := c.check([]byte(`{"error": "no", "exit_code": 2}`)); err != nil {
		t.Error(err)
	}
}
