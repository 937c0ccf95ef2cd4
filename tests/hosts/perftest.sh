#!/bin/sh
# ucx_perftest between two hosts: perftest.sh SSH_CONFIG SERVER CLIENT [OPTION]...
#
# Both sides get this process's UCX settings, and print them. What ssh -tt starts gets SIGHUP when its connection ends;
# UCX_DEBUG_SIGNO=0, because UCX would catch it.
config=$1 server=$2 client=$3
shift 3
settings=$(UCX_DEBUG_SIGNO=0 env | sed -n "s/^\(UCX_[A-Z0-9_]*\)=\(.*\)$/export \1='\2';/p" | tr '\n' ' ')

run_on() {
    ssh -qtt -F "$config" "$1" "$settings env | sed -n \"s/^UCX/\$(uname -n): UCX/p\"; until $2; do sleep 0.1; done"
}

run_on "$server" "ucx_perftest -p 13347 > /dev/null 2>&1" &
run_on "$client" "ucx_perftest -p 13347 $server $*"
