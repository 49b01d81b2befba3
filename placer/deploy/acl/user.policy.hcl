# What somebody needs who runs jobs through nomad-pal in one namespace, here
# "research":
#
#   nomad acl policy apply -description "research, with nomad-pal" research user.policy.hcl
#
# Commands then show the jobs of this namespace and nothing of others. Set
# NOMAD_PAL_ADDR to the address of the agent's API: it knows which GPUs are held,
# and tells no more than the token may know. Without it, plans and waiting times
# are worked out from what the token can see: GPUs held by jobs of other
# namespaces look free to it.

namespace "research" {
  capabilities = [
    "list-jobs",
    "read-job",
    "submit-job", # for plans, too
    "read-logs",
  ]
}

# The agent's variables lie in this namespace.
namespace "default" {
  variables {
    path "nomad-pal/effective-config" {
      capabilities = ["read"]
    }

    # Whether a placer is at work. Nobody but the agent needs to write it.
    path "nomad-pal/agent" {
      capabilities = ["read"]
    }

    # GPUs that are kept out. Not nomad-pal/failures: that names jobs of all
    # namespaces, and is for operators.
    path "nomad-pal/quarantine" {
      capabilities = ["read"]
    }

    path "nomad-pal/profile/*" {
      capabilities = ["list", "read"]
    }

    # The decisions on the jobs of this namespace.
    path "nomad-pal/decisions/research/*" {
      capabilities = ["read"]
    }
  }
}

node {
  policy = "read"
}
