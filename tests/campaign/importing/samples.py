"""What other programs printed, from public threads and pages; each with where it is from.

Lines that say nothing of the format are left out where `…` says so in the comment. What ran here is in `tests/data`.
"""

from __future__ import annotations

# https://github.com/openucx/ucx/issues/4274, comment of 15 January 2020.
OSU_BW = """\
# OSU MPI Bandwidth Test v5.6.2
# Size      Bandwidth (MB/s)
1                       1.53
2                       3.09
4                       6.28
8                      12.45
16                     25.96
32                     50.21
64                    100.85
128                   204.76
256                   425.22
512                   883.65
1024                 1262.07
2048                  807.29
4096                 1144.27
8192                 1419.13
16384                1571.04
32768                1757.58
65536                1782.01
131072               1804.88
262144               1792.01
524288               1774.67
1048576              1784.32
2097152              1785.41
4194304              1785.15
"""

# https://github.com/openucx/ucx/issues/9462: the command, and the first and the last rows.
OSU_BIBW = """\
$ mpirun -x UCX_RNDV_THRESH=1024 -np 2 /opt/osu-micro-benchmarks/mpi/pt2pt/osu_bibw -m :67108864 D  H
# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.3
# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)
# Size      Bandwidth (MB/s)
# Datatype: MPI_CHAR.
1                       0.12
2                       0.23
33554432             1430.35
67108864             1272.12
"""

# https://github.com/openucx/ucx/issues/11020, description of 20 November 2025: the first rows.
OSU_LATENCY = """\
# OSU MPI Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       0.94
2                       0.93
4                       0.92
8                       0.93
"""

# https://github.com/openucx/ucx/issues/2111, output of 24 December 2017, of `mpirun --tag-output --timestamp-output`.
OSU_LATENCY_MT = """\
Sun Dec 24 09:52:05 2017[1,0]<stdout>:provided thread level: 3
Sun Dec 24 09:52:05 2017[1,0]<stdout>:# OSU MPI Multi-threaded Latency Test v3.6
Sun Dec 24 09:52:05 2017[1,0]<stdout>:# Size          Latency (us)
Sun Dec 24 09:52:05 2017[1,1]<stdout>:provided thread level: 3
Sun Dec 24 09:52:05 2017[1,0]<stdout>:0                       2.35
Sun Dec 24 09:52:05 2017[1,0]<stdout>:1                       1.90
Sun Dec 24 09:52:05 2017[1,0]<stdout>:2                       1.90
Sun Dec 24 09:52:47 2017[1,0]<stdout>:4                    2113.56
Sun Dec 24 09:52:47 2017[1,0]<stdout>:8                       1.25
"""

# https://github.com/open-mpi/ompi/issues/11087: lines of Open MPI's pml_ucx, and the first rows.
OSU_ALLTOALL = """\
[seren-01:13454] pml_ucx.c:182 Got proc 1 address, size 38
[seren-01:13454] pml_ucx.c:411 connecting to proc. 1

# OSU MPI All-to-All Personalized Exchange Latency Test v5.6.2
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
2                      74.23             47.27            118.85        1000
4                     129.33             49.09            281.42        1000
8                      47.21             31.25             64.49        1000
16                    121.17             63.51            204.19        1000
"""

# https://github.com/pmodels/mpich/issues/7601, comment of 30 September 2025, as it was quoted there.
OSU_ALLTOALLV = """\
\\# OSU MPI All-to-Allv Personalized Exchange Latency Test v7.5
\\# Datatype: MPI_CHAR.
\\# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations  P50 Tail Lat(us)  P90 Tail Lat(us)\
  P99 Tail Lat(us)
4096                  467.38            460.43            474.05        1000            407.18            584.22\
            634.30
Sun 14 Sep 2025 04:55:38 PM UTC
"""

# https://github.com/open-mpi/ompi/pull/12318: the command, shortened, and the first rows.
OSU_ALLREDUCE = """\
$ mpirun -np 96 --use-hwthread-cpus --mca pml ob1 /usr/local/libexec/osu-micro-benchmarks/osu_allreduce -d cuda -f


# OSU MPI-CUDA Allreduce Latency Test v7.3
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
1                    1901.97           1895.70           1909.23        1000
2                    1866.46           1856.51           1890.17        1000
4                    1849.15           1846.66           1864.29        1000
"""

# https://github.com/openucx/ucx/issues/8851, comment of 7 February 2023; some of its lines.
UCX_LOG = """\
[1675729687.002730] [cn2:32621:0] ucp_context.c:2110 UCX INFO Version 1.15.0 (loaded from /usr/local/libucp.so.0)
[1675729687.102130] [cn2:32621:0] parser.c:2003 UCX INFO UCX_* env variables: UCX_LOG_LEVEL=info \
UCX_NET_DEVICES=mlx5_1:1
[1675729687.401567] [cn2:32621:0] ucp_worker.c:1775 UCX INFO 0x7590e0 inter-node cfg#1 tag(rc_mlx5/mlx5_1:1)
"""

# https://github.com/NVIDIA/nccl-tests/issues/78, comment of 8 December 2021: of 8 hosts with 8 GPUs, without its head.
NCCL_ALL_REDUCE = """\
#
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   268435456      67108864     float     sum   122131    2.20    4.33  2e-06   122165    2.20    4.33  2e-06
   536870912     134217728     float     sum   244833    2.19    4.32  2e-06   244844    2.19    4.32  2e-06
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 4.32178
"""

# The same comment.
NCCL_ALLTOALL = """\
#
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   268435456       1048576     float           520935    0.52    0.51  0e+00   519562    0.52    0.51  1e+00
   536870912       2097152     float          1041974    0.52    0.51  0e+00  1041299    0.52    0.51  1e+00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.507636
"""

# https://github.com/NVIDIA/nccl-tests/issues/252, comment of 24 September 2024.
NCCL_RING = """\
     in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   536870912     134217728     float     sum      -1    10052   53.41   93.46      0   9676.9   55.48   97.09      0
  1073741824     268435456     float     sum      -1    20079   53.48   93.58      0    19265   55.74   97.54      0
  2147483648     536870912     float     sum      -1    39871   53.86   94.26      0    39357   54.56   95.49      0
  4294967296    1073741824     float     sum      -1    77194   55.64   97.37      0    79688   53.90   94.32      0
  8589934592    2147483648     float     sum      -1   158070   54.34   95.10      0   158561   54.17   94.80      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 95.3009
"""

# https://github.com/NVIDIA/nccl-tests/issues/37, description of 12 February 2020, which has lost its `#`.
NCCL_WRONG = """\
all_gather_perf -g 8 -b 4294967296 -e 4294967296 -n 100
                                             out-of-place                       in-place
       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  4294967296     134217728   float    29122  129.05  129.05  1e+00    29169  128.84  128.84  1e+00
 Out of bounds values : 2 FAILED
 Avg bus bandwidth    : 128.942
"""

# https://github.com/NVIDIA/nccl-tests/issues/214, comment of 21 November 2024: the head, without the table.
NCCL_HEAD = """\
# nThread 1 nGpus 1 minBytes 256 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 1478709 on      gpu23 device  0 [0x31] NVIDIA A40
#  Rank  1 Group  0 Pid 1171742 on      gpu24 device  0 [0x31] NVIDIA A40
"""

# https://github.com/rapidsai/rapidsmpf/issues/698, description of 2 December 2025.
RAPIDSMPF_MEANS = """\
 - spill-bytes-host-to-device:           3.73 GiB (avg 1.86 GiB)
 - spill-bytes-recv-to-host:             3.73 GiB (avg 953.68 MiB)
 - spill-time-host-to-device:            706.48 ms (avg 353.24 ms)
means: 3.09 sec | local throughput: 4.83 GiB/s | global throughput: 38.62 GiB/s | in_parts: 1 | out_parts: 2 | \
nranks: 8 | device memory peak: 44.76 GiB | device memory total: 87.60 GiB (avg)
"""

# https://github.com/rapidsai/rapidsmpf/pull/103, description of 27 February 2025.
RAPIDSMPF_OLD_STATISTICS = """\
[INFO:0:0] Statistics:
 - event-loop-check-future-finish:  345.97 ms (avg 10.62 us)
 - event-loop-init-gpu-data-send:   100.43 ms (avg 3.08 us)
 - event-loop-metadata-recv:        130.90 ms (avg 4.02 us)
 - event-loop-metadata-send:        3.18 ms (avg 97.56 ns)
 - event-loop-pick-incoming-chunk:  1.30 ms (avg 39.85 ns)
 - event-loop-total:                616.85 ms
 - shuffle-payload-recv:            1.12 GiB (avg 5.73 MiB)
 - shuffle-payload-send:            1.12 GiB (avg 5.72 MiB)
"""

# https://github.com/rapidsai/rapidsmpf/issues/1155, of an actor of Ray: the first lines.
RAPIDSMPF_STATISTICS = """\
(BulkRayShufflerActor pid=2376537) === Statistics report (rank 3) ===
(BulkRayShufflerActor pid=2376537) Statistics:
(BulkRayShufflerActor pid=2376537)  - alloc-device:                                       102.30 GiB | 45.41 s | \
2.25 GiB/s | avg-stream-delay 66.85 us
(BulkRayShufflerActor pid=2376537)  - copy-device-to-host:                                29.06 GiB | 14.71 s | \
1.98 GiB/s | avg-stream-delay 31.04 us
(BulkRayShufflerActor pid=2376537)  - event-loop-process-communication:                   1.89 min | avg 43.37 us
(BulkRayShufflerActor pid=2376537)  - event-loop-total:                                   3.90 min | avg 44.84 us
"""

# https://github.com/rapidsai/rapidsmpf/blob/main/docs/source/statistics.md, the example of `write_json`: some lines,
# without the comma before the last brace, which the program does not write.
RAPIDSMPF_JSON = """\
{
  "statistics": {
    "alloc-device-bytes": {"count": 100, "value": 2.9957e+09, "max": 3.0029e+07},
    "alloc-device-stream-delay": {"count": 100, "value": 2.644, "max": 2.7e-02},
    "event-loop-total": {"count": 17800, "value": 0.04916, "max": 1.8e-04},
    "shuffle-payload-recv": {"count": 100, "value": 2.9957e+09, "max": 3.0029e+07}
  }
}
"""

# https://github.com/NVIDIA/cudf/pull/21594, description of 27 February 2026.
PDSDS = """\
$ python python/cudf_polars/cudf_polars/experimental/benchmarks/pdsds.py --root ~/cudf/tpcds_decimal --scale 1.0 \
--executor streaming --no-print-results --validate --baseline duckdb 17-23 --runtime rapidsmpf --native-parquet
✅ Query 17 - Iteration 0 finished in 1.3267s
✅ Query 18 - Iteration 0 finished in 0.6880s
✅ Query 19 - Iteration 0 finished in 0.2061s
✅ Query 20 - Iteration 0 finished in 0.2122s
✅ Query 21 - Iteration 0 finished in 0.1892s
✅ Query 22 - Iteration 0 finished in 0.2957s
✅ Query 23 - Iteration 0 finished in 0.4179s
"""

# https://github.com/NVIDIA/cudf/pull/20418: the summary of three of its queries.
PDSH_SUMMARY = """\
Iteration Summary
=======================================
query: 1
path: /cudf/sf0.1
scale_factor: 0.1
executor: in-memory
iterations: 1
---------------------------------------
min time : 2.3091
max time : 2.3091
mean time: 2.3091
=======================================
query: 2
path: /cudf/sf0.1
scale_factor: 0.1
executor: in-memory
iterations: 1
---------------------------------------
min time : 0.3807
max time : 0.3807
mean time: 0.3807
=======================================
"""

# https://github.com/NVIDIA/cudf/issues/21742, description of 10 March 2026: the first lines.
PDSH_WRONG = """\
 ❌ Query 4 failed validation!
Result mismatch
"""

# https://github.com/openucx/ucx/issues/10649, comment of 24 April 2025: one of its tests.
UCX_PERFTEST_TITLED = """\
=================================================== tag_bw =================================================
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
[thread 0]               622      0.240  1668.561  1668.561    46821.78   46821.78         599         599
Final:                  1000      0.240  1675.942  1671.351    46615.58   46743.62         597         598
"""

# https://github.com/openucx/ucx/issues/10532, description of 6 March 2025: without its end.
UCX_PERFTEST_CUT = """\
[root@moss-0002 bin]# ./ucx_perftest  172.23.155.50 -t ucp_am_lat -s 30000
[1741244344.655540] [moss-0002:1963139:0]        perftest.c:800  UCX  WARN  CPU affinity is not set (bound to 48 cpus)\
. Performance may be impacted.
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |        latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
[thread 0]             31045     15.993    16.106    16.106     1776.36    1776.36       62088       62088
[thread 0]             62188     16.024    16.055    16.081     1781.98    1779.17       62285       62187
"""
