#!/bin/sh
# nvidia-smi of the virtual GPU: answers the forms that job scripts use, from the profile of the modelled device.
#   nvidia-smi --query-accounted-apps=FIELDS …: from the reports in GRESIZE_VGPU_REPORT_DIR, which processes leave there when they end
#   nvidia-smi | nvidia-smi -L | nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits] [-i N] | nvidia-smi -q
# A card nobody uses: memory.used is the context alone. Unknown options are ignored, as a job script must not die of them.
set -u

name='NVIDIA H100 80GB HBM3' total=85017493504 context=524288000 driver=580.65.06 cuda=13020 major=9 minor=0 compute_mode=0
mig_profile='' mig_card='' mig_card_bytes=0
if [ -r "${GRESIZE_VGPU_PROFILE:-}" ]; then
	while IFS='=' read -r key value; do
		case $key in
		name) name=$value ;;
		total_bytes) total=$value ;;
		context_bytes) context=$value ;;
		driver_version) driver=$value ;;
		cuda_driver_version) cuda=$value ;;
		cc_major) major=$value ;;
		cc_minor) minor=$value ;;
		attr.20) compute_mode=$value ;;
		mig_profile) mig_profile=$value ;;
		mig_card) mig_card=$value ;;
		mig_card_bytes) mig_card_bytes=$value ;;
		esac
	done <"$GRESIZE_VGPU_PROFILE"
fi
case ${GRESIZE_VGPU_CAPACITY_BYTES:-} in
'' | *[!0-9]*) ;;
*) total=$GRESIZE_VGPU_CAPACITY_BYTES ;;
esac
case ${GRESIZE_VGPU_COUNT:-} in
'' | *[!0-9]*) count=1 ;;
*) count=$GRESIZE_VGPU_COUNT ;;
esac
slice_mib=$((total / 1048576))
if [ -n "$mig_profile" ]; then # what is asked about is the card; its slice is a device below it
	slices=$count count=$((count > 0)) name=$mig_card total=$mig_card_bytes mig=Enabled
elif [ "$minor" = 0 ] && [ "$major" -ge 8 ] && [ "$major" -lt 12 ]; then
	mig=Disabled
else
	mig='[N/A]'
fi
case $compute_mode in 1) mode_word=Exclusive_Thread ;; 2) mode_word=Prohibited ;; 3) mode_word=Exclusive_Process ;; *) mode_word=Default ;; esac
total_mib=$((total / 1048576)) used_mib=$((context / 1048576))
cuda_text="$((cuda / 1000)).$((cuda % 1000 / 10))"

query='' format='' only='' mode=table
while [ $# -gt 0 ]; do
	case $1 in
	-L | --list-gpus) mode=list ;;
	-q | --query) mode=details ;;
	-h | --help) mode=help ;;
	--query-gpu=*) mode=query query=${1#*=} ;;
	--query-gpu) mode=query query=${2:-}; [ $# -gt 1 ] && shift ;;
	--query-compute-apps*) mode=none ;;
	--query-accounted-apps=*) mode=accounted query=${1#*=} ;;
	--query-accounted-apps) mode=accounted query=${2:-}; [ $# -gt 1 ] && shift ;;
	--format=*) format=${1#*=} ;;
	--format) format=${2:-}; [ $# -gt 1 ] && shift ;;
	-i | --id) only=${2:-}; [ $# -gt 1 ] && shift ;;
	-i=* | --id=*) only=${1#*=} ;;
	esac
	shift
done

uuid() { printf 'GPU-11111111-1111-1111-1111-1111111111%02x' $((17 + $1)); }
bus() { printf '00000000:%02X:00.0' $((27 + $1)); }
has() { case ",$format," in *",$1,"* | *", $1,"*) return 0 ;; esac; return 1; }
mib() { if has nounits; then printf '%s' "$1"; else printf '%s MiB' "$1"; fi; }
slice_uuid() { printf 'MIG-22222222-2222-2222-2222-2222222222%02x' $((34 + $1)); }
percent() { if [ -n "$mig_profile" ]; then printf '[N/A]'; elif has nounits; then printf '%s' "$1"; else printf '%s %%' "$1"; fi; }

field() { # NAME DEVICE
	case $1 in
	name | gpu_name) printf '%s' "$name" ;;
	index) printf '%s' "$2" ;;
	count) printf '%s' "$count" ;;
	uuid | gpu_uuid) uuid "$2" ;;
	driver_version) printf '%s' "$driver" ;;
	pci.bus_id | gpu_bus_id) bus "$2" ;;
	memory.total) mib "$total_mib" ;;
	memory.used) mib "$used_mib" ;;
	memory.free) mib $((total_mib - used_mib)) ;;
	memory.reserved) mib 0 ;;
	utilization.gpu | utilization.memory) percent 0 ;;
	temperature.gpu) printf 35 ;;
	compute_cap) printf '%s.%s' "$major" "$minor" ;;
	compute_mode) printf '%s' "$mode_word" ;;
	persistence_mode) printf Enabled ;;
	mig.mode.current | mig.mode.pending) printf '%s' "$mig" ;;
	fan.speed) printf '[N/A]' ;;
	timestamp) date '+%Y/%m/%d %H:%M:%S.000' | tr -d '\n' ;;
	*) printf '[N/A]' ;;
	esac
}

header() { # FIELD: queries show the unit in the header
	case $1 in
	memory.*) printf '%s [MiB]' "$1" ;;
	utilization.*) printf '%s [%%]' "$1" ;;
	*) printf '%s' "$1" ;;
	esac
}

each_device() { # FUNCTION
	device=0
	while [ "$device" -lt "$count" ]; do
		if [ -z "$only" ] || [ "$only" = "$device" ]; then
			"$1" "$device"
		fi
		device=$((device + 1))
	done
}

row() { # FUNCTION DEVICE: the queried fields with ", " between
	separator=''
	for f in $(printf '%s' "$query" | tr ', ' '  '); do
		printf '%s' "$separator"
		"$1" "$f" "$2"
		separator=', '
	done
	echo
}

values_row() { row field "$1"; }
list_row() {
	echo "GPU $1: $name (UUID: $(uuid "$1"))"
	each_slice slice_list_row
}
each_slice() { # FUNCTION
	[ -n "$mig_profile" ] || return 0
	slice=0
	while [ "$slice" -lt "$slices" ]; do
		"$1" "$slice"
		slice=$((slice + 1))
	done
}
slice_list_row() { printf '  MIG %-11s Device %2d: (UUID: %s)\n' "$mig_profile" "$1" "$(slice_uuid "$1")"; }
slice_table_row() {
	printf '|        MIG %-9s GI %d CI 0 Device %d    | %7dMiB / %7dMiB |              Enabled |\n' "$mig_profile" $(($1 + 1)) "$1" "$used_mib" "$slice_mib"
}
slice_details_row() {
	printf '    MIG Device\n        Index                             : %d\n        GPU Instance ID                   : %d\n        Compute Instance ID               : 0\n        UUID                              : %s\n        FB Memory Usage\n            Total                         : %s MiB\n' \
		"$1" $(($1 + 1)) "$(slice_uuid "$1")" "$slice_mib"
}
table_row() {
	printf '|%4d  %-28.28s   On  | %s |                    0 |\n' "$1" "$name" "$(bus "$1")"
	printf '| N/A   35C    P0              70W / 700W | %7dMiB / %7dMiB |      0%%      %s |\n' "$used_mib" "$total_mib" "$mode_word"
	each_slice slice_table_row
}
accounted_rows() { # DEVICE: one row for each report of a process that took memory there
	for report in "${GRESIZE_VGPU_REPORT_DIR:-/nonexistent}"/native-*.json; do
		[ -r "$report" ] || continue
		pid=${report##*/native-} pid=${pid%.json}
		peak=$(sed -n 's/.*{"index":'"$1"',[^}]*"peak_bytes":\([0-9][0-9]*\).*/\1/p' "$report")
		case $peak in '' | 0) continue ;; esac
		peak_mib=$(((peak + context) / 1048576))
		row accounted_field "$1"
	done
}
accounted_field() { # NAME DEVICE
	case $1 in
	pid) printf '%s' "$pid" ;;
	max_memory_usage) mib "$peak_mib" ;;
	time) if has nounits; then printf 0; else printf '0 ms'; fi ;;
	gpu_util | mem_util) percent 0 ;;
	*) field "$1" "$2" ;;
	esac
}
details_row() {
	printf 'GPU %s\n    Product Name                          : %s\n    GPU UUID                              : %s\n' "$(bus "$1")" "$name" "$(uuid "$1")"
	printf '    FB Memory Usage\n        Total                             : %s MiB\n        Used                              : %s MiB\n        Free                              : %s MiB\n' \
		"$total_mib" "$used_mib" $((total_mib - used_mib))
	printf '    Compute Mode                          : %s\n    MIG Mode\n        Current                           : %s\n        Pending                           : %s\n' "$mode_word" "$mig" "$mig"
	each_slice slice_details_row
}

case $mode in
list) each_device list_row ;;
query)
	has noheader || row header ''
	each_device values_row
	;;
details)
	printf 'Driver Version                            : %s\nCUDA Version                              : %s\nAttached GPUs                             : %s\n' "$driver" "$cuda_text" "$count"
	each_device details_row
	;;
help) echo 'NVIDIA System Management Interface (virtual GPU): -L, -q, --query-gpu=FIELDS --format=csv[,noheader][,nounits], -i N' ;;
accounted)
	has noheader || row header ''
	each_device accounted_rows
	;;
none) ;;
*)
	date
	echo '+---------------------------------------------------------------------------------------+'
	printf '| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-9s|\n' "$driver" "$driver" "$cuda_text"
	echo '|-----------------------------------------+----------------------+----------------------+'
	each_device table_row
	echo '+-----------------------------------------+----------------------+----------------------+'
	;;
esac
