Agents of nomad-pal: [[ var "count" . ]]. One of them places, the others stand by.

With access control, the job's identity needs the policy of the agent:

  nomad acl policy apply -namespace [[ var "namespace" . | default "default" ]] -job [[ var "job_name" . ]] nomad-pal nomad-pal.policy.hcl

Then ask:

  nomad-pal doctor
  nomad-pal status
