package main

import (
	"reflect"
	"strings"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Type is a Go type of the configuration: the name of a scalar or of a struct in Schema, or what a pointer, list or
// map holds, with the prefix "*", "[]" or "map[string]".
type Type = string

// Schema has each struct's fields: name in JSON -> type, in Go's order.
type Schema map[string][][2]string

// schemaOfConfiguration is the type of every field of KubeletConfiguration, by reflection.
func schemaOfConfiguration() Schema {
	schema := Schema{}
	schema.named(reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]())
	return schema
}

var unmarshaler = reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]()

func (s Schema) named(kind reflect.Type) Type {
	switch {
	case kind.Kind() == reflect.Pointer:
		return "*" + s.named(kind.Elem())
	case reflect.PointerTo(kind).Implements(unmarshaler):
		return kind.String()
	case kind.Kind() == reflect.Slice:
		return "[]" + s.named(kind.Elem())
	case kind.Kind() == reflect.Map:
		return "map[" + kind.Key().Kind().String() + "]" + s.named(kind.Elem())
	case kind.Kind() == reflect.Struct:
		name := kind.Name()
		if _, known := s[name]; !known {
			s[name] = nil
			s[name] = s.fields(kind)
		}
		return name
	default:
		return kind.Kind().String()
	}
}

func (s Schema) fields(kind reflect.Type) [][2]string {
	var fields [][2]string
	for index := range kind.NumField() {
		field := kind.Field(index)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" && (field.Anonymous || strings.Contains(options, "inline")) {
			fields = append(fields, s.fields(field.Type)...)
			continue
		}
		if name == "" {
			name = field.Name
		}
		fields = append(fields, [2]string{name, s.named(field.Type)})
	}
	return fields
}
