{{/* The controllers, in the order in which they are rendered. */}}
{{- define "tonnage.controllers" -}}
scheduler replicas nodes
{{- end }}

{{- define "tonnage.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* Short enough that "-scheduler" still fits into a label value. */}}
{{- define "tonnage.fullname" -}}
{{- $name := include "tonnage.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/*
What the templates know of one controller, from (list ROOT NAME):
name, object (name of its objects), mode, apply, values, account, selector, labels.
*/}}
{{- define "tonnage.controller" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $values := index $root.Values.controllers $name }}
{{- $object := printf "%s-%s" (include "tonnage.fullname" $root) $name }}
{{- $mode := default $root.Values.mode $values.mode }}
{{- $selector := dict
  "app.kubernetes.io/name" (include "tonnage.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/component" $name }}
{{- $labels := merge (dict
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")) $selector }}
{{- dict
  "name" $name
  "object" $object
  "mode" $mode
  "apply" (eq $mode "apply")
  "values" $values
  "account" (default $object $values.serviceAccount.name)
  "selector" $selector
  "labels" $labels | toJson }}
{{- end }}

{{/* {"items": […]}: what the templates know of each controller that is switched on. */}}
{{- define "tonnage.enabled" -}}
{{- $items := list }}
{{- range $name := splitList " " (include "tonnage.controllers" .) }}
{{- if (index $.Values.controllers $name).enabled }}
{{- $items = append $items (include "tonnage.controller" (list $ $name) | fromJson) }}
{{- end }}
{{- end }}
{{- dict "items" $items | toJson }}
{{- end }}

{{- define "tonnage.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* Labels and selectors of what is there once for all controllers, as {"labels": …, "selector": …}. */}}
{{- define "tonnage.shared" -}}
{{- $first := first (include "tonnage.enabled" . | fromJson).items }}
{{- dict
  "labels" (omit $first.labels "app.kubernetes.io/component")
  "selector" (omit $first.selector "app.kubernetes.io/component") | toJson }}
{{- end }}

{{/* What no single value can tell: refused with what to do. */}}
{{- define "tonnage.check" -}}
{{- $enabled := (include "tonnage.enabled" . | fromJson).items }}
{{- if not $enabled }}
{{- fail "every controller is switched off: set controllers.scheduler.enabled, controllers.replicas.enabled or controllers.nodes.enabled to true" }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "podMonitor and serviceMonitor are both enabled: every metric would be there twice; leave one of them" }}
{{- end }}
{{- range $enabled }}
{{- if and (not .values.serviceAccount.create) (not .values.serviceAccount.name) }}
{{- fail (printf "controllers.%s.serviceAccount.name is empty: name an account that exists, or let the chart make one with serviceAccount.create" .name) }}
{{- end }}
{{- if and .apply (eq .name "scheduler") (eq .values.partitioning "relayout") (not $.Values.gpuOperator.namespace) }}
{{- fail "gpuOperator.namespace is empty: controllers.scheduler.partitioning=relayout writes to a ConfigMap there; name the namespace of the GPU operator, or set controllers.scheduler.partitioning=static" }}
{{- end }}
{{- if and .apply (eq .name "replicas") (not .values.prometheusUrl) }}
{{- fail "controllers.replicas.prometheusUrl is empty: in apply mode it must name your Prometheus, like http://prometheus-operated.monitoring:9090; or set controllers.replicas.mode=observe or controllers.replicas.enabled=false" }}
{{- end }}
{{- end }}
{{- end }}
