#!/bin/bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# installed.sh runs in a container of test.sh, with systemd and a Nomad: it installs the packages of FORMAT, deb or rpm,
# from /old, upgrades to those of VERSION in /new, goes back, and removes them.
set -euo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND"; journalctl -u nomad-pal -u nomad -n 20 --no-pager -o cat' ERR

say() { echo "- $*"; }
same() { [ "$1" = "$2" ] || { echo "$3: got \"$1\", want \"$2\""; return 1; }; }
# none fails if the command succeeds. A plain "! command" would not end the script, despite set -e.
none() { if "$@"; then return 1; fi; }
# until_ok runs a command until it succeeds, for a minute.
until_ok() {
  for _ in $(seq 120); do if "$@" > /tmp/last 2>&1; then return; fi; sleep 0.5; done
  echo "did not succeed within a minute: $*"; cat /tmp/last; return 1
}
case $FORMAT in
deb)
  arch=amd64 keep=nomad-pal.hcl.dpkg-dist
  install() { dpkg --force-confdef --force-confold -i "$1"/nomad-pal_*_amd64.deb "$1"/nomad-device-pal_*_amd64.deb; }
  back() { install "$1"; }
  remove() { dpkg -r nomad-pal nomad-device-pal; }
  purge() { dpkg -P nomad-pal nomad-device-pal; }
  ;;
rpm)
  # --nodeps, because Debian's rpm does not know which packages dpkg has installed.
  keep=nomad-pal.hcl.rpmnew
  install() { rpm -U --nodeps "$1"/nomad-pal-*.x86_64.rpm "$1"/nomad-device-pal-*.x86_64.rpm; }
  back() { rpm -U --nodeps --oldpackage "$1"/nomad-pal-*.x86_64.rpm "$1"/nomad-device-pal-*.x86_64.rpm; }
  remove() { rpm -e nomad-pal nomad-device-pal; }
  purge() { rm -rf /etc/nomad-pal.d; userdel nomad-pal; } # rpm has no purge
  rpm -K --nosignature /new/*.x86_64.rpm
  ;;
esac
ours() { find / -xdev \( -path /proc -o -path /sys -o -path /test -o -path /old -o -path /new -o -path /var/lib/dpkg -o -path /var/log \) -prune -o -name '*nomad*pal*' -print | sort; }
running() { systemctl show -P MainPID nomad-pal; }
before=$(ours)

say install
install /old
same "$(systemctl is-active nomad-pal)" inactive "the agent before anybody started it"
same "$(stat -c '%U:%G %a' /etc/nomad-pal.d)" "root:nomad-pal 750" "rights of /etc/nomad-pal.d"
for f in /usr/share/doc/nomad-pal/copyright /usr/share/doc/nomad-pal/LICENSES.txt \
  /usr/share/doc/nomad-pal/examples/alerts.yml; do [ -s $f ]; done
systemd-analyze verify nomad-pal.service

say "Nomad with the plugin as installed, and the agent as a service"
mkdir -p /etc/nomad.d
cat > /etc/nomad.d/gpus.hcl.inventory <<'HCL'
defaults {
  model      = "NVIDIA H200"
  memory_mib = 143771
}
gpu "GPU-0001" { times = { A = 1.0, B = 1.0 } }
gpu "GPU-0002" { times = { A = 1.2, B = 1.0 } }
HCL
sed 's|config {}|config { \n backend = "emulated" \n inventory = "/etc/nomad.d/gpus.hcl.inventory" \n }|' /usr/share/doc/nomad-device-pal/examples/nomad-device-pal.hcl > /etc/nomad.d/plugin.hcl
cat > /etc/nomad.d/client.hcl <<'HCL'
plugin "raw_exec" {
  config { enabled = true }
}
HCL
# Not as root, because Nomad would then use the machine's cgroups.
systemd-run -q --unit=nomad --uid=daemon nomad agent -dev -bind=127.0.0.1 -network-interface=lo -config=/etc/nomad.d
until_ok sh -c 'nomad node status -self -verbose | grep -q GPU-0002'
systemctl enable -q --now nomad-pal
until_ok nomad-pal doctor
same "$(nomad-pal gpus | grep -c GPU-000)" 2 "GPUs"
same "$(stat -c %U /proc/$(running))" nomad-pal "user of the agent"
same "$(systemctl show -P NRestarts nomad-pal)" 0 "restarts"
none sh -c "journalctl -u nomad-pal -o cat | grep -E '\[(WARN|ERROR)\]|not permitted|denied'"

say upgrade
sed -i 's/# default_class = "B"/default_class = "B"/' /etc/nomad-pal.d/nomad-pal.hcl
kept=$(sha256sum < /etc/nomad-pal.d/nomad-pal.hcl)
pid=$(running)
install /new
same "$(nomad-pal version | sed -n '1s/nomad-pal v//p')" "$VERSION" "version"
same "$(sha256sum < /etc/nomad-pal.d/nomad-pal.hcl)" "$kept" "the operator's configuration"
[ -e /etc/nomad-pal.d/$keep ]
same "$(stat -c '%U:%G %a' /etc/nomad-pal.d)" "root:nomad-pal 750" "rights of /etc/nomad-pal.d"
[ "$(running)" != "$pid" ]
until_ok nomad-pal doctor

say "roll back"
pid=$(running)
back /old
same "$(sha256sum < /etc/nomad-pal.d/nomad-pal.hcl)" "$kept" "the operator's configuration"
[ "$(running)" != "$pid" ]
until_ok nomad-pal doctor
install /new

say "upgrade with a configuration that is wrong"
echo 'nonsense = 1' >> /etc/nomad-pal.d/nomad-pal.hcl
back /old 2>&1 | tee /tmp/said
grep -q 'the agent did not start again' /tmp/said
sed -i '$d' /etc/nomad-pal.d/nomad-pal.hcl
until_ok nomad-pal doctor
install /new

if command -v nomad-pack > /dev/null; then
  say "the pack"
  systemctl stop nomad-pal
  until_ok sh -c '! nomad-pal doctor'
  tar -C /tmp -xzf /new/nomad-pal-pack_*.tar.gz
  HOME=/tmp nomad-pack run --var driver=raw_exec --var count=1 /tmp/nomad-pal
  until_ok nomad-pal doctor
  nomad service info nomad-pal
  nomad job stop -purge nomad-pal
  systemctl start nomad-pal
fi

say remove
remove > /tmp/said
grep -q "remove links to the plugin" /tmp/said
same "$(systemctl is-active nomad-pal)" inactive "the agent of a removed package"
[ -n "$(ls /etc/nomad-pal.d)" ] # the configuration stays
[ ! -e /usr/bin/nomad-pal ] && [ ! -L /usr/bin/nomad-device-pal ] && [ ! -e /usr/lib/nomad ]
purge
systemctl stop nomad
same "$(ours)" "$before" "what is left"
none getent passwd nomad-pal
say "all checks passed"
