{{- define "penstock.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "penstock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "penstock.domain" -}}
{{ include "penstock.name" . }}-brokers.{{ .Release.Namespace }}.svc.cluster.local
{{- end -}}

{{- /* The addresses of the voters: names of pods that every size of the cluster has. */ -}}
{{- define "penstock.bootstrap" -}}
{{- $name := include "penstock.name" . -}}
{{- $domain := include "penstock.domain" . -}}
{{- $addresses := list -}}
{{- range until (int .Values.voters) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s:9092" $name . $domain) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{- /* 22 characters of base64, of which the last has two bits only. */ -}}
{{- define "penstock.clusterId" -}}
{{- if .Values.clusterId -}}
{{ .Values.clusterId }}
{{- else -}}
{{ printf "%s/%s" .Release.Namespace (include "penstock.name" .) | sha256sum | trunc 21 }}Q
{{- end -}}
{{- end -}}

{{- define "penstock.tlsSecret" -}}
{{- if and (eq .Values.tls.source "secret") .Values.tls.secretName -}}
{{ .Values.tls.secretName }}
{{- else -}}
{{ include "penstock.name" . }}-tls
{{- end -}}
{{- end -}}

{{- define "penstock.adminSecret" -}}
{{ .Values.auth.adminSecret | default (printf "%s-admin" (include "penstock.name" .)) }}
{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "penstock.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- /* The most brokers that there may be: services of single brokers are made ahead. */ -}}
{{- define "penstock.brokersMax" -}}
{{- $largest := int .Values.replicaCount -}}
{{- if .Values.autoscaling.enabled -}}{{- $largest = max $largest (int .Values.autoscaling.maxReplicas) -}}{{- end -}}
{{- max $largest (int .Values.external.brokers) -}}
{{- end -}}

{{- define "penstock.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "penstock.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* How commands in pods connect: as the administrator, if there are users. */ -}}
{{- define "penstock.clientEnv" -}}
- name: PENSTOCK_BOOTSTRAP
  value: {{ include "penstock.bootstrap" . | quote }}
{{- if .Values.tls.enabled }}
- name: PENSTOCK_COMMAND_CONFIG
  value: /etc/penstock/{{ ternary "admin/admin.properties" "config/client.properties" .Values.auth.enabled }}
{{- end }}
{{- end -}}

{{- define "penstock.clientMounts" -}}
- {name: config, mountPath: /etc/penstock/config, readOnly: true}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/penstock/tls, readOnly: true}
{{- end }}
{{- if .Values.auth.enabled }}
- {name: admin, mountPath: /etc/penstock/admin, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "penstock.clientVolumes" -}}
- name: config
  configMap: {name: {{ include "penstock.name" . }}-config}
{{- if .Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "penstock.tlsSecret" . }}, defaultMode: 0440}
{{- end }}
{{- if .Values.auth.enabled }}
- name: admin
  secret: {secretName: {{ include "penstock.adminSecret" . }}, defaultMode: 0440}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{- define "penstock.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* How the API server finds the external metrics, and whose certificate it has to see there. */ -}}
{{- define "penstock.externalMetricsApi" -}}
{{- $root := .root }}
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1beta1.external.metrics.k8s.io
  labels: {{- include "penstock.labels" $root | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  {{- with .authority }}
  caBundle: {{ . }}
  {{- end }}
  service: {name: {{ include "penstock.name" $root }}-external-metrics, namespace: {{ $root.Release.Namespace }}, port: 443}
{{- end -}}
