{{/* Name prefix of every object: the release name, with `headrace` in it. */}}
{{- define "headrace.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* Labels that select one component's pods: include with (list $ "operator"). */}}
{{- define "headrace.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "headrace.labels" -}}
{{- $root := index . 0 -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* One of our own images: include with (list $ "sidecar"). */}}
{{- define "headrace.image" -}}
{{- $root := index . 0 -}}
{{ printf "%s/%s:%s" $root.Values.image.registry (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) }}
{{- end -}}

{{/* Scheduling and pull fields of a pod: include with (list $ "operator"), whose values section it reads. */}}
{{- define "headrace.podFields" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "headrace.selector" . | nindent 8 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* One replica may be evicted at a time; one that is alone has no budget, or its node could not be drained: include
     with (list $ "operator"). */}}
{{- define "headrace.disruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- if gt (int $values.replicas) 1 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "headrace.fullname" $root }}-{{ index . 1 }}
  labels:
    {{- include "headrace.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "headrace.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "headrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where clients reach the gateway. */}}
{{- define "headrace.gatewayUrl" -}}
{{- $port := int .Values.gateway.service.port -}}
{{- $scheme := .Values.gateway.tls.secretName | empty | ternary "http" "https" -}}
{{- $service := printf "%s://%s-gateway.%s.svc" $scheme (include "headrace.fullname" .) .Release.Namespace -}}
{{ .Values.gateway.url | default (eq $port (eq $scheme "http" | ternary 80 443) | ternary $service (printf "%s:%d" $service $port)) }}
{{- end -}}

{{/* The memory limit of a component in bytes, 2 GiB if it has none: include with (dict "component" "gateway"
     "resources" RESOURCES). */}}
{{- define "headrace.memoryLimit" -}}
{{- $quantity := toString (dig "limits" "memory" "2Gi" .resources) -}}
{{- $unit := regexFind "[A-Za-z]*$" $quantity -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if not (hasKey $units $unit) -}}
{{- fail (printf "%s.resources.limits.memory: %s is not a quantity such as 512Mi or 2Gi" .component $quantity) -}}
{{- end -}}
{{ mulf (trimSuffix $unit $quantity | float64) (get $units $unit) | int64 }}
{{- end -}}

{{/* Refuse a limit below what reading JSON bodies may take: include with (dict "component" "gateway" "resources"
     RESOURCES "readers" NUMBER "factor" NUMBER "body" BYTES). 256 MiB are for all the rest. */}}
{{- define "headrace.enoughMemory" -}}
{{- $limit := include "headrace.memoryLimit" . | int64 -}}
{{- $least := add 268435456 (mul .readers .factor (int64 .body)) -}}
{{- if lt $limit $least -}}
{{- fail (printf "%s.resources.limits.memory: set it to %dMi or more for gateway.maxBodyBytes of %d, or bodies can use it up: one that is read as JSON takes %d times its size" .component (div (add $least 1048575) 1048576) (int64 .body) (int64 .factor)) -}}
{{- end -}}
{{- end -}}

{{/* RBAC of one component: include with (dict "root" $ "component" "operator" "rules" RULES-AS-YAML).
     A ClusterRole, or one Role in each watched namespace. */}}
{{- define "headrace.rbac" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $rules := .rules -}}
{{- $name := printf "%s-%s" (include "headrace.fullname" $root) $component -}}
{{- $labels := include "headrace.labels" (list $root $component) -}}
{{- $kind := $root.Values.watchNamespaces | empty | ternary "ClusterRole" "Role" -}}
{{- range $namespace := ($root.Values.watchNamespaces | default (list "")) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ quote . }}
  {{- end }}
  labels:
    {{- $labels | nindent 4 }}
rules:
  {{- $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ quote . }}
  {{- end }}
  labels:
    {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
{{- end -}}

{{/* The Lease by which one replica of a component is chosen: include with (list $ "operator").
     A permission to create cannot be bound to a name. */}}
{{- define "headrace.leaseRbac" -}}
{{- $root := index . 0 -}}
{{- $account := printf "%s-%s" (include "headrace.fullname" $root) (index . 1) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $account }}-lease
  labels:
    {{- include "headrace.labels" . | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ $account }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $account }}-lease
  labels:
    {{- include "headrace.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $account }}-lease
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end -}}

{{/* Whether the chart's ValidatingAdmissionPolicies are part of the release: "true" or nothing. `helm template` knows
     no kinds of a cluster: then the Kubernetes version that the chart asks for has them. */}}
{{- define "headrace.admission" -}}
{{- $versions := .Capabilities.APIVersions -}}
{{- $served := $versions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if and .Values.admissionPolicies.enabled (or $served (not ($versions.Has "apps/v1/Deployment"))) -}}
true
{{- end -}}
{{- end -}}

{{/* How the API server names a component's service account: include with (list $ "operator"). */}}
{{- define "headrace.user" -}}
{{- $root := index . 0 -}}
{{ printf "system:serviceaccount:%s:%s-%s" $root.Release.Namespace (include "headrace.fullname" $root) (index . 1) }}
{{- end -}}

{{/* Binds a policy of the same name: include with (list $ "operator" NAME). */}}
{{- define "headrace.admissionBinding" -}}
{{- $root := index . 0 -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "headrace.labels" (list $root (index . 1)) | nindent 4 }}
spec:
  policyName: {{ index . 2 }}
  validationActions: [Deny]
{{- end -}}
