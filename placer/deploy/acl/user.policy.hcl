# The rights of a user who runs jobs through nomad-pal in one namespace, here
# "research":
#
#   nomad acl policy apply -description "research, with nomad-pal" research user.policy.hcl
#
# Commands then show only the jobs of this namespace. They ask the agent. Its answers count the
# GPUs of all jobs, but name nothing that the token may not read.

namespace "research" {
  capabilities = [
    "list-jobs",
    "read-job",
    "submit-job", # for plans, too
    "read-logs",
    "alloc-exec", # for nomad-pal shell

    # For nomad-pal shell with the driver raw_exec, remove the first "# " of the next line. The
    # session's command then runs on the node without isolation, like each raw_exec task.
    # "alloc-node-exec",
  ]
}

# The host volume of docs/tasks/first-gang.md.
host_volume "shared" {
  capabilities = ["mount-readwrite"]
}

# The agent's variables are in this namespace.
namespace "default" {
  variables {
    # Shows whether an agent is active, and the address of its API. Only the agent needs to write it.
    path "nomad-pal/agent" {
      capabilities = ["read"]
    }

    # GPUs in quarantine. nomad-pal/failures is for operators only: it mentions jobs of all
    # namespaces.
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
