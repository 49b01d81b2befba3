# What the agent of nomad-pal needs, and no more. With a token:
#
#   nomad acl policy apply -description "nomad-pal agent" nomad-pal nomad-pal.policy.hcl
#   nomad acl token create -name nomad-pal -policy nomad-pal
#
# Or, where the agent runs as a Nomad job, for its workload identity:
#
#   nomad acl policy apply -namespace default -job nomad-pal nomad-pal nomad-pal.policy.hcl
#
# To let it serve some namespaces only, keep "list-jobs" and "read-job" in the block
# for "*", and give "submit-job", "alloc-lifecycle" and "read-fs" in a block for each of these.
# It has to see all: Nomad sends no events to a token that may not read the jobs of
# every namespace, and GPUs of jobs that it cannot see look free. Gated jobs of other
# namespaces wait. The variables stay in the namespace that the agent's configuration
# names, nomad { namespace = "default" }.

namespace "*" {
  capabilities = [
    "list-jobs",       # see which jobs there are
    "read-job",        # read them, their allocations and their events
    "submit-job",      # write the pins, after a dry run
    "alloc-lifecycle", # stop members: preemption, repair of partial gangs
    "read-fs",         # read the progress that jobs report (pal_progress); nothing else is read
  ]
}

namespace "default" {
  capabilities = ["list-jobs", "read-job", "submit-job", "alloc-lifecycle", "read-fs"]

  variables {
    # Decisions, profile, rules, imported measurements, the heartbeat, the lock of
    # the leader. Let nobody else write them: the commands believe them.
    path "nomad-pal/*" {
      capabilities = ["list", "read", "write", "destroy"]
    }
  }
}

# GPUs, their attributes, what is free.
node {
  policy = "read"
}
