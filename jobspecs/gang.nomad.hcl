# A gang: four allocations of eight GPUs, all or none, on nodes close together
# and away from slow GPUs. The ranks find each other through Nomad services.
#
#   nomad-pal plan gang.nomad.hcl            # where it would run now, and why
#   nomad-pal run gang.nomad.hcl
#   nomad-pal explain gang
job "gang" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "open"
  }

  meta {
    pal_class    = "A"
    pal_duration = "6h"   # an estimate: shortens the queue for everybody
    pal_preempt  = "true" # it checkpoints, so it may be stopped and started again
  }

  group "ranks" {
    count = 4

    network {
      port "rendezvous" {}
    }

    # A rank whose peers are gone is of no use: let the placer start the gang
    # again as a whole.
    restart {
      attempts = 0
      mode     = "fail"
    }

    service {
      name     = "gang-rendezvous"
      port     = "rendezvous"
      provider = "nomad"
    }

    task "rank" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "torchrun"
        args = [
          "--nnodes=4",
          "--nproc-per-node=8",
          "--rdzv-backend=c10d",
          "--rdzv-id=${NOMAD_JOB_ID}",
          "--rdzv-endpoint=${RENDEZVOUS}",
          "train.py",
        ]
      }

      # All ranks meet at the first allocation's port.
      template {
        destination = "local/rendezvous.env"
        env         = true
        data        = <<-EOT
          {{ with nomadService 1 "rendezvous" "gang-rendezvous" }}{{ with index . 0 }}RENDEZVOUS={{ .Address }}:{{ .Port }}{{ end }}{{ end }}
        EOT
      }

      resources {
        cpu    = 32000
        memory = 131072

        device "nvidia/gpu" {
          count = 8
        }
      }
    }
  }
}
