# Shared by the scripts of this folder; source it, do not run it.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)

# Tools of an administrator live in sbin, which is not on the PATH of all users.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

# usage prints the comment at the top of the calling script.
usage() {
	awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"
}

# asks_for_help reports whether -h is among the arguments.
asks_for_help() {
	local argument
	for argument in "$@"; do
		case $argument in
		-h | --help | -help) return 0 ;;
		--) return 1 ;;
		esac
	done
	return 1
}

fail() {
	echo "error: $*" >&2
	exit 1
}

# cni_folder prints the folder that has the three CNI plugins the node uses. Debian, the projects' own archives and
# Fedora put them in different places.
cni_folder() {
	local folder
	for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
		if [ -x "$folder/bridge" ] && [ -x "$folder/host-local" ] && [ -x "$folder/loopback" ]; then
			echo "$folder"
			return 0
		fi
	done
	return 1
}

# missing reads lines with a program and its Debian package, and prints the packages of the programs that are missing, one per
# line. It asks for programs and not for packages: a machine with Docker has containerd and runc from another package, and must
# keep them.
missing() {
	local program package
	while read -r program package; do
		command -v "$program" >/dev/null || echo "$package"
	done | sort -u
}

# missing_packages prints what a node needs.
missing_packages() {
	missing <<-END
		containerd containerd
		containerd-shim-runc-v2 containerd
		ctr containerd
		runc runc
		ip iproute2
		mount mount
		nsenter util-linux
		sha256sum coreutils
	END
	cni_folder >/dev/null || echo containernetworking-plugins
}

# missing_olm_packages prints what a node with OLM needs in addition: a statically linked busybox, for images.
missing_olm_packages() {
	local busybox
	if ! busybox=$(command -v busybox) || ldd "$busybox" >/dev/null 2>&1; then
		echo busybox-static
	fi
}

# missing_program_packages prints what programs.sh and the tests with its images need in addition.
missing_program_packages() {
	missing <<-END
		gcc gcc
		javac default-jdk-headless
		jlink default-jdk-headless
		node nodejs
		redis-check-rdb redis-tools
		redis-cli redis-tools
	END
}
