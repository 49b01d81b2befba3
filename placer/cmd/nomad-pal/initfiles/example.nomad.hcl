# A gang of <<.Count>> × <<.GPUsEach>> GPUs, which fits <<.Fits>>.
# All of it starts together, or nothing.
#
#   nomad-pal plan example.nomad.hcl      # where it would run now, and why
#   nomad-pal run example.nomad.hcl
#   nomad-pal explain nomad-pal-example
job "nomad-pal-example" {
  type = "batch"
<<- if ne .Namespace "default" >>
  namespace = <<hcl .Namespace>>
<<- end >>
<<- if ne .Pool "default" >>
  node_pool = <<hcl .Pool>>
<<- end >>

  meta {
    pal_class    = "A" # how much it minds slow GPUs: A the most, D the least
    pal_duration = "5m"
  }

  group "workers" {
    count = <<.Count>>

    task "train" {
<<- if eq .Driver "docker" >>
      driver = "docker"

      config {
        image   = "ubuntu:24.04"
        command = "/bin/sh"
        args    = ["-c", "nvidia-smi -L; echo $NVIDIA_VISIBLE_DEVICES; sleep 60"]
      }
<<- else >>
      driver = <<hcl .Driver>>

      config {
        command = "/bin/sh"
        args    = ["-c", "nvidia-smi -L; echo $NVIDIA_VISIBLE_DEVICES; sleep 60"]
      }
<<- end >>

      resources {
        cpu    = 100
        memory = 64

        device <<hcl .Device>> {
          count = <<.GPUsEach>>
        }
      }
    }
  }
}
