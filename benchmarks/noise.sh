#!/bin/sh
# A command that takes a time with noise of its own: noise.sh KIND SEED LAUNCH STATE
#
# It sleeps for about 10 ms and prints for how long. KIND: normal, heavy-tails (Student's t with 2 degrees of freedom), or
# two-states (a quarter slower for some launches in a row, which the file STATE keeps). The noise is the same for the
# same KIND, SEED and LAUNCH. The variable NOISE_GAIN: how many times as fast it is.
digits=$(printf '%s' "$1 $2 $3" | sha256sum)
seconds=$(awk -v digits="$digits" -v kind="$1" -v file="$4" -v gain="${NOISE_GAIN-1}" '
    function uniform(number,    at, sum) {
        for (at = 1; at <= 12; at++)
            sum = 16 * sum + index("0123456789abcdef", substr(digits, 12 * number + at, 1)) - 1
        return (sum + 0.5) / 16 ^ 12
    }
    function clamp(value, most) { return value > most ? most : value < -most ? -most : value }
    BEGIN {
        normal = sqrt(-2 * log(uniform(0))) * cos(6.283185307179586 * uniform(1))
        if (kind == "normal")
            noise = 0.03 * normal
        else if (kind == "heavy-tails")
            noise = clamp(0.02 * normal / sqrt(-log(uniform(2))), 3)
        else {
            getline state < file
            if (uniform(2) < 0.3)
                state = 1 - state
            print state > file
            noise = log(1.25) * state + 0.005 * normal
        }
        printf "%.6f\n", 0.01 * exp(noise) / gain
    }')
sleep "$seconds"
echo "time: $seconds s"
