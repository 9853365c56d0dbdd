"""Replicas of a partition on several log roots: ISR, high watermark, leader epochs, elections."""
