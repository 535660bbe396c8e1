"""Judges the manifests given as arguments by the published schemas of Kubernetes (kubernetes-validate, strict).

The kinds of agent-sandbox have no schema in any registry. Their pod is judged as a Pod, and their own few fields by the
table below, which was read from the project's resource definitions (v0.5.6, v1beta1).
"""

import sys

import kubernetes_validate
import yaml

VERSION = "1.37"
AGENT_SANDBOX = "extensions.agents.x-k8s.io/v1beta1"


def text(*allowed):
    return lambda value: isinstance(value, str) and (not allowed or value in allowed)


def count(value):
    return isinstance(value, int) and value >= 0


SPECS = {
    "SandboxTemplate": {
        "podTemplate": (True, dict),
        "service": (False, bool),
        "envVarsInjectionPolicy": (False, text("Allowed", "Overrides", "Disallowed")),
        "networkPolicyManagement": (False, text("Managed", "Unmanaged")),
        "networkPolicy": (False, dict),
        "volumeClaimTemplates": (False, list),
        "volumeClaimTemplatesPolicy": (False, text()),
    },
    "SandboxWarmPool": {
        "replicas": (True, count),
        "sandboxTemplateRef": (True, lambda value: set(value) == {"name"}),
        "updateStrategy": (False, lambda value: value in ({"type": "OnReplenish"}, {"type": "Recreate"})),
    },
}


def judge_agent_sandbox(document, names):
    kind, spec, fields = document["kind"], document["spec"], SPECS[document["kind"]]
    unknown = set(spec) - set(fields)
    missing = {name for name, (required, _) in fields.items() if required} - set(spec)
    assert not unknown and not missing, f"{kind}: unknown {unknown}, missing {missing}"
    for name, value in spec.items():
        rule = fields[name][1]
        right = isinstance(value, rule) if isinstance(rule, type) else rule(value)
        assert right, f"{kind}.spec.{name}: {value!r}"
    if kind == "SandboxTemplate":
        assert set(spec["podTemplate"]) <= {"metadata", "spec"}
        metadata = {"name": "sandbox", **spec["podTemplate"].get("metadata", {})}
        judge({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec["podTemplate"]["spec"]})
    else:
        template = ("SandboxTemplate", spec["sandboxTemplateRef"]["name"])
        assert template in names, f"{kind}: there is no {template}"


def judge(document):
    kubernetes_validate.validate(document, VERSION, strict=True)


documents = [one for path in sys.argv[1:] for one in yaml.safe_load_all(open(path, encoding="utf-8"))]
names = {(one["kind"], one["metadata"]["name"]) for one in documents}
for one in documents:
    if one["kind"] in SPECS:
        assert one["apiVersion"] == AGENT_SANDBOX, one["apiVersion"]
        judge_agent_sandbox(one, names)
    else:
        judge(one)
    print(one["kind"], one["metadata"]["name"], "is valid")
for document in documents:
    for volume in document.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", []):
        secret = volume.get("secret", {}).get("secretName")
        assert secret is None or ("Secret", secret) in names, f"there is no Secret {secret}"
