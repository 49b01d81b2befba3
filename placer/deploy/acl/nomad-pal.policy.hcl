# The rights that nomad-pal's agent needs, and no more. For a token:
#
#   nomad acl policy apply -description "nomad-pal agent" nomad-pal nomad-pal.policy.hcl
#   nomad acl token create -name nomad-pal -policy nomad-pal
#
# If the agent runs as a Nomad job, for its workload identity:
#
#   nomad acl policy apply -namespace default -job nomad-pal nomad-pal nomad-pal.policy.hcl
#
# To let the agent serve only some namespaces, keep "list-jobs" and "read-job" in the block
# for "*", and grant "submit-job" and "alloc-lifecycle" in a block for each of these
# namespaces. Gated jobs of other namespaces then wait. The agent must see all jobs: Nomad sends
# no events to a token that may not read the jobs of every namespace, and GPUs of hidden jobs
# look free. The variables are in the namespace that the agent's configuration names:
# nomad { namespace = "default" }.

namespace "*" {
  capabilities = [
    "list-jobs",       # list all jobs
    "read-job",        # read jobs, their allocations and their events
    "submit-job",      # write the pins, after a dry run
    "alloc-lifecycle", # stop members: preemption, repair of partial gangs
  ]
}

namespace "default" {
  capabilities = ["list-jobs", "read-job", "submit-job", "alloc-lifecycle"]

  variables {
    # Decisions, the profile, imported measurements, quarantine, the heartbeat, the leader's
    # lock and more. Let nobody else write them, because the commands trust them.
    path "nomad-pal/*" {
      capabilities = ["list", "read", "write", "destroy"]
    }
  }
}

# Jobs that mount host volumes. When the agent registers such a job, Nomad asks for the agent's
# right to the volume, too. CSI volumes need "csi-mount-volume" in the blocks above, and
# plugin { policy = "read" }.
host_volume "*" {
  capabilities = ["mount-readwrite"]
}

# To read the nodes' GPUs and their attributes.
node {
  policy = "read"
}
