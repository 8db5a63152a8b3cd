"""One YAML or JSON document as Kubernetes reads it: bytes -> JSON value, by the rules of sigs.k8s.io/yaml.

A text whose first character is ``{`` is JSON, everything else YAML 1.1 (apimachinery pkg/util/yaml:IsJSONBuffer).
libyaml parses YAML; Kubernetes' parser (go.yaml.in/yaml/v2) is a port of an older one. Where the two may differ, in
texts that no person writes, the text is not read, with NotTold. This folder owns what the port makes of the parser's
events: ``read`` is its door, ``value`` what comes out. For YAML ``yaml_nodes`` makes nodes of the events, ``decode``
and ``resolve`` make Go's values of these (decode.go, resolve.go), and ``json_values`` turns them into JSON as
sigs.k8s.io/yaml does. Which fields a document must have is left to its reader.
"""
