"""Two published tables of ucc_perftest and a trace with SHARP, as text; `tests/data/ucc` has recorded ones."""

from __future__ import annotations

# From the report of the CUHK team, who added reduce-scatter to UCC's tl_sharp: four nodes, one rank each, with it and
# without.
SHARP_ON = """
# ########### perf sharp ON

#        Count        Size                Time, us                           Bandwidth, GB/s
#                                  avg         min         max         avg         max         min
#        16384       65536        9.54        8.80       10.84       20.62       22.33       18.15
#        32768      131072       14.96       14.38       16.42       26.28       27.34       23.95
#        65536      262144       25.60       24.75       27.57       30.72       31.77       28.53
#       131072      524288       48.41       47.42       50.96       32.49       33.17       30.86
#       262144     1048576       92.19       91.38       93.96       34.12       34.42       33.48
#       524288     2097152      181.14      180.35      183.06       34.73       34.88       34.37
#      1048576     4194304      359.04      358.27      360.94       35.05       35.12       34.86
#      2097152     8388608      758.77      757.90      760.94       33.17       33.20       33.07
#      4194304    16777216     1575.13     1574.16     1577.52       31.95       31.97       31.91
#      8388608    33554432     3164.77     3163.38     3166.61       31.81       31.82       31.79
#     16777216    67108864     6347.39     6346.47     6349.78       31.72       31.72       31.71
#     33554432   134217728    12681.29    12680.08    12683.31       31.75       31.75       31.75
#     67108864   268435456    25398.83    25397.85    25401.24       31.71       31.71       31.70
#    134217728   536870912    50849.42    50848.51    50852.04       31.67       31.67       31.67
"""
SHARP_OFF = """
# ########### perf sharp OFF (using UCP)

#        Count        Size                Time, us                           Bandwidth, GB/s
#                                  avg         min         max         avg         max         min
#        16384       65536       46.07       45.68       46.44        4.27        4.30        4.23
#        32768      131072       85.44       83.22       87.81        4.60        4.72        4.48
#        65536      262144      154.09      148.72      159.35        5.10        5.29        4.94
#       131072      524288      290.91      274.37      303.37        5.41        5.73        5.18
#       262144     1048576      554.53      530.35      576.88        5.67        5.93        5.45
#       524288     2097152     1093.23     1030.02     1144.22        5.75        6.11        5.50
#      1048576     4194304     2244.57     2147.11     2306.64        5.61        5.86        5.46
#      2097152     8388608     7092.01     7015.09     7175.36        3.55        3.59        3.51
#      4194304    16777216    25325.55    25221.17    25380.26        1.99        2.00        1.98
#      8388608    33554432    53533.08    52978.25    54052.87        1.88        1.90        1.86
#     16777216    67108864   107361.22   106633.57   108699.34        1.88        1.89        1.85
#     33554432   134217728   212698.12   210525.60   214735.00        1.89        1.91        1.88
#     67108864   268435456   422000.92   413962.71   426931.16        1.91        1.95        1.89
#    134217728   536870912   841231.09   827954.97   849455.64        1.91        1.95        1.90
"""
# One in which SHARP carried some counts: such a network was not at hand, so it is written after UCC's source.
TRACE = """[1700000000.1] [node1:77:0] ucc_coll.c:306  UCC_COLL INFO  coll_init: Barrier; \
CL_BASIC {TL_SHARP}, team_id 32768
[1700000000.2] [node1:77:0] ucc_coll.c:306  UCC_COLL INFO  coll_init: Reduce_scatter sum: \
src={0x7f00, 65536, float32, Host}, dst={0x7f01, 32768, float32, Host}; CL_BASIC {TL_UCP}, team_id 32768
[1700000000.3] [node1:77:0] ucc_coll.c:306  UCC_COLL INFO  coll_init: Reduce_scatter sum: \
src={0x7f00, 131072, float32, Host}, dst={0x7f01, 65536, float32, Host}; CL_BASIC {TL_SHARP}, team_id 32768
[1700000000.4] [node1:77:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 intra-node cfg#2 tag(sysv/memory)
"""
