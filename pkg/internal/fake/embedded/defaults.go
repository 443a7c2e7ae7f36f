package embedded

import (
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// setDefaults fills in the defaults of a schema, in the parts of the content that
// exist or have a default themselves.
func setDefaults(content map[string]any, s *extv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		if _, set := content[name]; !set && p.Default != nil {
			var value any
			// A CRD whose default isn't JSON can't have come this far.
			if err := json.Unmarshal(p.Default.Raw, &value); err == nil {
				content[name] = value
			}
		}

		setDefaultsIn(content[name], &p)
	}
}

func setDefaultsIn(value any, s *extv1.JSONSchemaProps) {
	switch v := value.(type) {
	case map[string]any:
		setDefaults(v, s)
	case []any:
		if s.Items == nil || s.Items.Schema == nil {
			return
		}
		for _, item := range v {
			setDefaultsIn(item, s.Items.Schema)
		}
	}
}
