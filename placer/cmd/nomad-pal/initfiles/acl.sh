#!/bin/sh
# Applies the policies and makes the tokens of nomad-pal. It needs a management token in
# NOMAD_TOKEN, and may run again: tokens that are there are kept.
set -eu
cd "$(dirname "$0")"
umask 077

nomad acl policy apply -description "nomad-pal agent" nomad-pal nomad-pal.policy.hcl
nomad acl policy apply -description "nomad-pal on clients" nomad-pal-node node.policy.hcl
<<- range .Namespaces >>
nomad acl policy apply -description "users of nomad-pal in <<.>>" nomad-pal-user-<<.>> user-<<.>>.policy.hcl
<<- end >>

# The agent's, which agent.hcl names, and that of the device plugin on the clients.
[ -s agent.token ] || nomad acl token create -name nomad-pal -policy nomad-pal -t '{{ .SecretID }}' > agent.token
[ -s node.token ] || nomad acl token create -name nomad-pal-node -policy nomad-pal-node -t '{{ .SecretID }}' > node.token

# A user's:
<<- range .Namespaces >>
#   nomad acl token create -name <who> -policy nomad-pal-user-<<.>>
<<- end >>
