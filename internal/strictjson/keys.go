package strictjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// keys reads the next value of a sound document, which was decoded into a kind, and finds the keys that encoding/json
// takes and other readers do not: it reads Bytes as bytes, and of a key that stands twice it joins both values.
func keys(decoder *json.Decoder, kind reflect.Type) error {
	kind = target(kind)
	if kind != nil && !holdsKeys(kind) {
		var skipped json.RawMessage
		return decoder.Decode(&skipped)
	}
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('['):
		for decoder.More() {
			if err := keys(decoder, element(kind)); err != nil {
				return err
			}
		}
	case json.Delim('{'):
		var fields map[string]reflect.Type
		if kind != nil && kind.Kind() == reflect.Struct {
			fields = fieldsOf(kind)
		}
		seen := map[string]bool{}
		for decoder.More() {
			token, err := decoder.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			of := element(kind)
			if fields != nil {
				var known bool
				if of, known = fields[key]; !known {
					return fmt.Errorf("unknown field %q: another spelling of a known one", key)
				}
			}
			if seen[key] {
				return fmt.Errorf("field %q stands twice", key)
			}
			seen[key] = true
			if err := keys(decoder, of); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = decoder.Token()
	return err
}

// target is the kind behind pointers, or nil where a document may have any form.
func target(kind reflect.Type) reflect.Type {
	for kind != nil && kind.Kind() == reflect.Pointer && !kind.Implements(unmarshaler) {
		kind = kind.Elem()
	}
	if kind == nil || kind.Kind() == reflect.Interface || kind.Implements(unmarshaler) || reflect.PointerTo(kind).Implements(unmarshaler) {
		return nil
	}
	return kind
}

// element is the kind of what an array or a map holds.
func element(kind reflect.Type) reflect.Type {
	if kind == nil {
		return nil
	}
	switch kind.Kind() {
	case reflect.Array, reflect.Slice, reflect.Map:
		return kind.Elem()
	}
	return nil
}

// holdsKeys says whether a value of a kind has keys anywhere. A long list of numbers is passed over by it.
func holdsKeys(kind reflect.Type) bool {
	switch kind = target(kind); {
	case kind == nil:
		return true
	case kind.Kind() == reflect.Struct || kind.Kind() == reflect.Map:
		return true
	}
	of := element(kind)
	return of != nil && holdsKeys(of)
}

// fieldsOf are a struct's fields by the names that they have in a document, those of embedded structs among them.
func fieldsOf(kind reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(kind) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous && name == "" || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields[name] = f.Type
	}
	return fields
}
