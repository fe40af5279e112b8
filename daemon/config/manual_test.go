package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestManualHasEveryKey holds docs/configuration.md to the keys and defaults of the code, and to nothing else.
func TestManualHasEveryKey(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+?) \\| .+ \\|$").FindAllStringSubmatch(string(manual), -1) {
		documented[m[1]] = strings.Trim(m[2], "`")
	}
	known := map[string]bool{}
	c := Defaults()
	c.Version = 0
	found := &faults{fields: map[string]bool{}, tables: map[string]bool{}}
	if c.checkEstimators(found); len(found.found) > 0 {
		t.Fatal(found.found)
	}
	walkKeys(reflect.ValueOf(c), "", func(key, value string) {
		known[key] = true
		if got, there := documented[key]; !there || got != value {
			t.Errorf("docs/configuration.md: the row of %s says %q, want %q", key, got, value)
		}
	})
	for key := range documented {
		if !known[key] {
			t.Errorf("docs/configuration.md: %s is no key", key)
		}
	}
}

// walkKeys calls each with every key of the file and its default as the file would spell it.
func walkKeys(v reflect.Value, prefix string, each func(key, value string)) {
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("toml")
		field := v.Field(i)
		switch value := field.Interface().(type) {
		case Bytes:
			each(key, unset(value == 0 && !strings.HasPrefix(key, "policy."), `"`+strings.ReplaceAll(value.String(), " ", "")+`"`))
		case Duration:
			each(key, unset(value == 0 && strings.Contains(key, "["), `"`+strings.TrimSuffix(strings.Replace(value.Std().String(), "m0s", "m", 1), "h0m")+`"`))
		case []string:
			each(key, unset(strings.Contains(key, "["), strings.ReplaceAll(fmt.Sprintf("%q", value), `" "`, `", "`)))
		default:
			switch field.Kind() {
			case reflect.Struct:
				walkKeys(field, key+".", each)
			case reflect.Slice:
				row := reflect.New(field.Type().Elem()).Elem()
				if field.Len() > 0 {
					row = field.Index(0)
				}
				walkKeys(row, key+"[].", each)
			case reflect.Map:
				walkKeys(reflect.New(field.Type().Elem()).Elem(), key+".NAME.", each)
			case reflect.String:
				each(key, unset(field.Len() == 0 && strings.ContainsAny(key, "[N"), fmt.Sprintf("%q", field.String())))
			default:
				each(key, unset(key == "version" || strings.HasPrefix(key, "shard."), fmt.Sprint(value)))
			}
		}
	}
}

// unset is how the manual marks a key without a default.
func unset(is bool, value string) string {
	if is {
		return "–"
	}
	return value
}
