/* coupons/lane_account.c -- see lane_account.h. */
#include "coupons/lane_account.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OF_LANE_0 "lane-0-"

static char *put_number(char *to, int64_t number)
{
    if (number > 9)
        to = put_number(to, number / 10);
    *to = (char)('0' + number % 10);
    return to + 1;
}

char *account_name(int64_t lane, int64_t peer, char name[ACCOUNT_NAME_SIZE])
{
    char *to = name + strlen("lane-");

    assert(lane >= 0 && peer >= 0);
    memcpy(name, "lane-", strlen("lane-"));
    to = put_number(to, lane);
    *to++ = '-';
    *put_number(to, peer) = '\0';
    return name;
}

int64_t account_peer(const char *name, int64_t lane, int64_t lanes)
{
    char own[ACCOUNT_NAME_SIZE];
    int64_t peer = 0;

    if (!name)
        return -1;
    if (lane == 0 && strncmp(name, OF_LANE_0, strlen(OF_LANE_0)) == 0)
        peer = strtoll(name + strlen(OF_LANE_0), NULL, 10);
    if (peer < 0 || peer >= lanes || (lane == 0) == (peer == 0))
        return -1;
    return strcmp(account_name(lane, peer, own), name) == 0 ? peer : -1;
}
