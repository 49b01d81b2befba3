# What somebody needs who runs jobs through nomad-pal in one namespace, here
# "research":
#
#   nomad acl policy apply -description "research, with nomad-pal" research user.policy.hcl
#
# Commands then show the jobs of this namespace and nothing of others. They ask the
# agent, which knows all GPUs in use and tells no more than the token may know.

namespace "research" {
  capabilities = [
    "list-jobs",
    "read-job",
    "submit-job", # for plans, too
    "read-logs",
    "alloc-exec", # for nomad-pal shell; with the driver raw_exec "alloc-node-exec", too
  ]
}

# The agent's variables lie in this namespace.
namespace "default" {
  variables {
    # Whether a placer is active, and where its API is. Nobody but the agent needs to write it.
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
  }
}

node {
  policy = "read"
}
